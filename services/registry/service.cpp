#include "services/registry/service.h"

#include <nlohmann/json.hpp>
#include <string>

#include "services/registry/embedded.h"
#include "services/registry/routes/routes.h"
#include "services/registry/settings.h"
#include "shared/events/events.h"
#include "shared/service/idempotency.h"

namespace atl::registry {
namespace {

std::span<const pg::Migration> migrations() {
    static const std::string first =
        std::string(kSchema0001InitSql) + std::string(events::kTablesSql) + std::string(service::kIdempotencyTableSql);
    static const pg::Migration all[] = {{1, first}};
    return all;
}

class RunningRegistry final : public service::Running {
  public:
    RunningRegistry(service::Context& context, const Settings& settings)
        : routing_{context.pool, settings.topic_prefix + "atoll.datasets"},
          relay_(context.pool, context.settings.postgres, "registry", context.settings.kafka_brokers, context.metrics) {
        add_routes(context.server, routing_);
    }
    Status events() override { return relay_.ready(); }

  private:
    Routing routing_;
    events::Relay relay_;
};

Result<std::unique_ptr<service::Running>> start(service::Context& context, const Settings& settings) {
    return std::unique_ptr<service::Running>(std::make_unique<RunningRegistry>(context, settings));
}

}  // namespace

service::Definition definition() {
    return {.name = "registry",
            .migrations = migrations(),
            .openapi = kOpenapiJson,
            .metrics = {},
            .configure = service::configure_with(parse_settings, start)};
}

}  // namespace atl::registry
