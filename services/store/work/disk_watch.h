#pragma once

#include "services/store/blobs/blob_store.h"
#include "shared/metrics/metrics.h"

namespace atl::store {

// Tells operators that the disk fills up, before uploads are refused: three gauges, and a line in the log whenever what
// is free falls below twice the reserve, below the reserve, or has come back. Not thread-safe.
class DiskWatch {
  public:
    DiskWatch(const BlobStore& blobs, metrics::Registry& metrics);

    enum class Room { kEnough, kLittle, kNone };
    // Called again and again; cheap.
    Room look();

  private:
    const BlobStore& blobs_;
    prometheus::Gauge& size_;
    prometheus::Gauge& free_;
    prometheus::Gauge& free_min_;
    Room last_ = Room::kEnough;
};

}  // namespace atl::store
