#include "services/aggregation/service.h"

#include "services/aggregation/embedded.h"
#include "services/aggregation/events/events.h"
#include "services/aggregation/routes/routes.h"
#include "services/aggregation/settings.h"
#include "services/aggregation/work/worker.h"
#include "shared/service/dead_letters.h"

namespace atl::aggregation {
namespace {

class RunningAggregation final : public service::Running {
  public:
    RunningAggregation(service::Context& context, const Settings& settings)
        : relay_(context.pool, context.settings.postgres, "aggregation", context.settings.kafka_brokers,
                 context.metrics),
          workers_(context.pool, worker_options(context.pool, context.settings.postgres, settings, context.metrics,
                                                service::instance_name(context.settings))),
          inbox_(
              context.pool, context.settings.kafka_brokers, settings.topic_prefix + "aggregation",
              {rounds_topic(settings.topic_prefix)},
              [settings](pg::Transaction& transaction, const events::Event& event) {
                  return apply_event(transaction, event, settings);
              },
              context.metrics, service::instance_name(context.settings)),
          routing_{context.pool, settings} {
        add_routes(context.server, routing_);
        service::add_dead_letter_routes("aggregation", context.server, context.pool,
                                        [this](const std::string& id) { return inbox_.replay(id); });
    }

    Status ready() override {
        ATOLL_RETURN_IF_ERROR(inbox_.ready());
        return relay_.ready();
    }

  private:
    events::Relay relay_;
    pg::LeaseWorkers workers_;
    events::InboxConsumer inbox_;
    Routing routing_;
};

std::span<const pg::Migration> migrations() {
    static const std::string first = std::string(events::kTablesSql) + std::string(kSchema0001InitSql);
    static const pg::Migration all[] = {{1, first}};
    return all;
}

Result<std::unique_ptr<service::Running>> start(service::Context& context, const Settings& settings) {
    return std::unique_ptr<service::Running>(std::make_unique<RunningAggregation>(context, settings));
}

}  // namespace

service::Definition definition() {
    return {.name = "aggregation",
            .migrations = migrations(),
            .openapi = kOpenapiJson,
            .configure = service::configure_with(parse_settings, start)};
}

}  // namespace atl::aggregation
