#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "services/store/blobs/blob_store.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::store {

// Removes the blobs that no version needs and that nobody has stored or asked about for `age`: what uploads left that
// never became a version. How many. Safe beside uploads and new versions, and to be killed at any instant. A blob that
// cannot be removed is logged and stays.
Result<std::int64_t> sweep(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age);

// Forgets what attempts have uploaded whose tokens have long expired.
Status forget_uploads(pg::Pool& pool);

// Whoever was uploading when the store went away asks for his blobs again within this time after its start; the longest
// pause of dispatch is shorter.
inline constexpr std::chrono::minutes kSweepGrace{30};

// A thread that sweeps once an hour, first `grace` after the start. No age: only uploads are forgotten.
class Sweeper {
  public:
    Sweeper(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age, metrics::Registry& metrics,
            std::chrono::seconds grace = kSweepGrace);

  private:
    std::jthread thread_;
};

}  // namespace atl::store
