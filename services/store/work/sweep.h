#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>
#include <vector>

#include "services/store/blobs/blob_store.h"
#include "services/store/db/retention.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::store {

struct BlobCount {
    std::int64_t blobs = 0;
    std::uint64_t bytes = 0;
};

// Removes the blobs that no version needs and that nobody has stored or asked about for `age`: what uploads left that
// never became a version. How many. Safe beside uploads and new versions, and to be killed at any instant. A blob that
// cannot be removed is logged and stays. `dry_run` only counts.
Result<BlobCount> sweep(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age, bool dry_run = false);

// Removes what outdated_versions() names, in small transactions; returns it. Safe to be killed at any instant. `rounds`
// 0 removes nothing, nor does `dry_run`.
Result<std::vector<nlohmann::json>> prune_versions(pg::Pool& pool, std::int64_t rounds, const PruneScope& scope,
                                                   bool dry_run);

// Forgets what attempts have uploaded whose tokens have long expired.
Status forget_uploads(pg::Pool& pool);

// Whoever was uploading when the store went away asks for his blobs again within this time after its start; the longest
// pause of dispatch is shorter.
inline constexpr std::chrono::minutes kSweepGrace{30};

// The blobs that are held. One that goes meanwhile may count.
BlobCount count_blobs(const BlobStore& blobs);

// A thread that prunes versions and sweeps blobs once an hour, first `grace` after the start. No age: blobs stay.
class Sweeper {
  public:
    Sweeper(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age, std::int64_t rounds, metrics::Registry& metrics,
            std::chrono::seconds grace = kSweepGrace);

  private:
    std::jthread thread_;
};

}  // namespace atl::store
