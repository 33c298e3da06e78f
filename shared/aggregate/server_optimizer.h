#pragma once

#include <nlohmann/json_fwd.hpp>

#include "shared/base/result.h"

namespace atl::aggregate {

// The outer step as a job's strategy has it: {"optimizer": "nesterov", "lr": 0.7, "momentum": 0.9}, with the defaults
// filled in. kInvalidArgument naming the member of "strategy.outer" that is wrong.
Result<nlohmann::json> parse_outer(const nlohmann::json& value);

}  // namespace atl::aggregate
