#pragma once

#include <cstdint>
#include <mutex>
#include <semaphore>
#include <string>

#include "services/store/blobs/blob_store.h"
#include "services/store/settings.h"
#include "services/store/work/blob_intake.h"
#include "services/store/work/fair_turn.h"
#include "shared/http/server/server.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::store {

// What the handlers work with; outlives the server.
struct Routing {
    Routing(pg::Pool& database, BlobStore& blob_store, const Settings& settings, metrics::Registry& metrics);

    pg::Pool& pool;
    BlobStore& blobs;
    BlobIntake intake;
    std::string topic;                         // of new versions
    std::string accel_prefix;                  // as in Settings
    std::int64_t keep_updates_rounds;          // as in Settings
    std::int64_t unused_blob_hours;            // as in Settings
    std::int64_t operator_manifest_bytes_max;  // as in Settings
    std::counting_semaphore<1024> puts;        // bodies that may be written at once
    FairTurn large_versions;                   // in which versions of a large manifest or head are made
    std::mutex pruning;                        // one at a time looks through all blobs
    prometheus::Counter& bytes_in;
    prometheus::Counter& bytes_out;
    prometheus::Counter& refused;
};

void add_blob_routes(http::Server& server, Routing& routing);   // /v1/blobs: bytes in and out
void add_model_routes(http::Server& server, Routing& routing);  // /v1/models and /v1/versions

}  // namespace atl::store
