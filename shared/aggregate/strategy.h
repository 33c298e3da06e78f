#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "shared/aggregate/average.h"
#include "shared/base/result.h"

namespace atl::aggregate {

// How the updates of a round become the next model, as jobs, events and the command line have it: {"name": "fedavg",
// "weighting": "uniform" | "tokens", "outer": {"optimizer": "nesterov", "lr": 0.7, "momentum": 0.9}}.
struct StrategySpec {
    std::string name = "fedavg";
    bool weighs_by_tokens = true;
    std::optional<ServerOptimizer> server_optimizer = {};  // "outer", without the momentum of an earlier step
};

const std::vector<std::string>& strategy_names();
// null: the defaults. kInvalidArgument naming the member of "strategy" that is wrong or unknown.
Result<StrategySpec> parse_strategy(const nlohmann::json& value);
nlohmann::json to_json(const StrategySpec& strategy);  // with every default filled in

}  // namespace atl::aggregate
