#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "services/store/blobs/blob_store.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::store {

// Compares a blob with its name. One that has rotted is logged with the versions that it hits and stays on the list of
// damaged blobs until it is uploaded again. Safe beside everything else.
Status scrub_blob(pg::Pool& pool, BlobStore& blobs, const std::string& sha256);

// Tells the blob store what earlier processes have found, and takes off the list what is gone or was stored again.
Status recall_damage(pg::Pool& pool, BlobStore& blobs);

// A thread that reads all blobs once in `cycle`, one directory (ab/cd) after another, evenly: after a restart it goes
// on where it was. A cycle of zero: none are read.
class Scrubber {
  public:
    Scrubber(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds cycle, metrics::Registry& metrics);

  private:
    std::jthread thread_;
};

}  // namespace atl::store
