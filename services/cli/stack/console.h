#pragma once

#include <filesystem>

#include "shared/base/result.h"

namespace atl::cli::stack {

// Writes the web console's files (services/console/page, embedded in this program) into `directory`, where nginx reads
// them. Files of an older program that are no longer part of it disappear.
Status write_console(const std::filesystem::path& directory);

}  // namespace atl::cli::stack
