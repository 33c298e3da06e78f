#pragma once

#include <nlohmann/json_fwd.hpp>

#include "services/cli/context.h"

namespace atl::cli {

// `job submit --check`: shows what would become of a job, and submits nothing. kInvalidArgument: something fails.
Status check_job(const Context& context, const nlohmann::json& spec);

}  // namespace atl::cli
