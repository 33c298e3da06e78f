#pragma once

#include <CLI/CLI.hpp>

#include "services/cli/context.h"

namespace atl::cli {

// dataset adopt
void add_dataset_adopt(CLI::App& group, Context& context);

}  // namespace atl::cli
