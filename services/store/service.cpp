#include "services/store/service.h"

#include "services/store/embedded.h"
#include "services/store/metrics.h"
#include "services/store/routes/routes.h"
#include "services/store/work/disk_watch.h"
#include "services/store/work/scrub.h"
#include "services/store/work/sweep.h"
#include "shared/events/events.h"
#include "shared/service/idempotency.h"

namespace atl::store {
namespace {

std::span<const pg::Migration> migrations() {
    static const std::string first =
        std::string(events::kTablesSql) + std::string(service::kIdempotencyTableSql) + std::string(kSchema0001InitSql);
    static const pg::Migration all[] = {{1, first}};
    return all;
}

class RunningStore : public service::Running {
  public:
    RunningStore(service::Context& context, const Settings& settings, std::unique_ptr<BlobStore> blobs)
        : blobs_(std::move(blobs)),
          routing_(context.pool, *blobs_, settings, context.metrics),
          relay_(context.pool, context.settings.postgres, "store", context.settings.kafka_brokers, context.metrics),
          sweeper_(context.pool, *blobs_, std::chrono::hours(settings.unused_blob_hours), settings.keep_updates_rounds,
                   context.metrics),
          disk_(*blobs_, context.metrics),
          scrubber_(context.pool, *blobs_, std::chrono::days(settings.scrub_days), context.metrics) {
        add_blob_routes(context.server, routing_);
        add_model_routes(context.server, routing_);
    }
    Status events() override { return relay_.ready(); }
    // Asked each second.
    Status ready() override {
        disk_.look();
        return {};
    }

  private:
    std::unique_ptr<BlobStore> blobs_;
    Routing routing_;
    events::Relay relay_;
    Sweeper sweeper_;
    DiskWatch disk_;
    Scrubber scrubber_;
};

}  // namespace

Result<std::unique_ptr<service::Running>> start(service::Context& context, const Settings& settings) {
    ATOLL_TRY(auto blobs, BlobStore::open(settings.root, settings.free_bytes_min));
    ATOLL_RETURN_IF_ERROR(recall_damage(context.pool, *blobs));
    return std::unique_ptr<service::Running>(std::make_unique<RunningStore>(context, settings, std::move(blobs)));
}

service::Definition definition() {
    return {.name = "store",
            .migrations = migrations(),
            .openapi = kOpenapiJson,
            .metrics = {kMetrics.rows},
            .configure = service::configure_with(parse_settings, start)};
}

}  // namespace atl::store
