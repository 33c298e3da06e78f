#pragma once

#include <string>
#include <vector>

#include "shared/base/result.h"

namespace atl::cli {

// Runs `atoll-trainer` beside this program and waits for it, a day at most. What it warns of goes to standard error.
// kInvalidArgument names `field`: it calls its input wrong.
Status run_trainer(const std::vector<std::string>& arguments, const std::string& field);

}  // namespace atl::cli
