#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "services/store/blob_store.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::store {

// Removes the blobs that no version needs and that nobody has stored or asked about for `age`: what uploads left that
// never became a version. How many. Safe beside uploads and new versions, and to be killed at any instant.
Result<std::int64_t> sweep(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age);

// A thread that sweeps once an hour, first when it has run for `age`: whoever was uploading when the store went away
// has that long to go on. No age: it does nothing.
class Sweeper {
  public:
    Sweeper(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age, metrics::Registry& metrics);

  private:
    std::jthread thread_;
};

}  // namespace atl::store
