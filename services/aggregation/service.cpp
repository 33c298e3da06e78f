#include "services/aggregation/service.h"

#include "services/aggregation/embedded.h"
#include "services/aggregation/events/events.h"
#include "services/aggregation/metrics.h"
#include "services/aggregation/routes/routes.h"
#include "services/aggregation/settings.h"
#include "services/aggregation/work/worker.h"
#include "shared/auth/auth.h"
#include "shared/metrics/common.h"
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
          inbox_(context.pool, context.settings.kafka_brokers, settings.topic_prefix + "aggregation",
                 {rounds_topic(settings.topic_prefix)},
                 [settings](pg::Transaction& transaction, const events::Event& event) {
                     return apply_event(transaction, event, settings);
                 },
                 context.metrics, {.instance = service::instance_name(context.settings)}),
          routing_{context.pool, settings} {
        add_routes(context.server, routing_);
        context.metrics.gauge(kMetrics["atoll_aggregation_workers"]).Set(static_cast<double>(settings.workers));
        auto& end =
            context.metrics.gauge(metrics::kCommon["atoll_token_expiry_timestamp_seconds"], {{"token", "aggregation"}});
        context.metrics.on_expose([&end, settings] {
            const auto token = read_token(settings);
            const auto end_s = token.ok() ? auth::token_end_s(*token) : Result<std::int64_t>(token.error());
            end.Set(end_s.ok() ? static_cast<double>(*end_s) : 0);  // one that cannot be read has ended
        });
        service::add_dead_letter_routes("aggregation", context.server, context.pool,
                                        [this](const std::string& id) { return inbox_.replay(id); });
    }

    Status events() override {
        ATOLL_RETURN_IF_ERROR(inbox_.ready());
        return relay_.ready();
    }
    bool needs_events() const override { return true; }

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
            .metrics = {kMetrics.rows, metrics::kInbox.rows},
            .configure = service::configure_with(parse_settings, start)};
}

}  // namespace atl::aggregation
