#include "shared/aggregate/server_optimizer.h"

#include "shared/json/json.h"

namespace atl::aggregate {

Result<nlohmann::json> parse_outer(const nlohmann::json& value) {
    json::ObjectReader reader(value, "strategy.outer");
    json::Json outer = {{"optimizer", reader.one_of("optimizer", {"nesterov"}, "nesterov")},
                        {"lr", reader.number_or("lr", 0.7, 1e-6, 100)},
                        {"momentum", reader.number_or("momentum", 0.9, 0, 0.9999)}};
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return outer;
}

}  // namespace atl::aggregate
