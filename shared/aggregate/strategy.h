#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/result.h"

namespace atl::aggregate {

// An optimizer's step from the base against the pseudo-gradient base - mean (Reddi et al. 2021,
// https://arxiv.org/abs/2003.00295, whose letters these are). It is SGD with Nesterov momentum as PyTorch has it
// (DiLoCo, https://arxiv.org/abs/2311.08105), each operation rounded to fp32:
//   d = base - mean;  momentum' = beta1 momentum + d;  weights = base - learning_rate (d + beta1 momentum')
struct ServerOptimizer {
    double learning_rate = 0.7;  // "lr"
    double beta1 = 0.9;          // "momentum"
};

// How the updates of a round become the next model, as jobs, events and the command line have it: {"name": "fedavg",
// "weighting": "uniform" | "tokens", "outer": {"optimizer": "nesterov", "lr": 0.7, "momentum": 0.9}}.
struct StrategySpec {
    std::string name = "fedavg";
    bool weighs_by_tokens = true;
    std::optional<ServerOptimizer> server_optimizer = {};  // "outer"; none: the mean is the next model
};

const std::vector<std::string>& strategy_names();
std::string unknown_strategy(const std::string& name);  // the message that says which there are
// null: the defaults. kInvalidArgument naming the member of "strategy" that is wrong or unknown.
Result<StrategySpec> parse_strategy(const nlohmann::json& value);
nlohmann::json to_json(const StrategySpec& strategy);  // with every default filled in

}  // namespace atl::aggregate
