#pragma once

#include <filesystem>

#include "shared/base/result.h"

namespace atl::console {

// Writes the web console's files (services/console/page, embedded in this program) into `directory`, where nginx reads
// them. Nothing there is removed: a directory that was given by mistake loses nothing.
Status write_console(const std::filesystem::path& directory);

}  // namespace atl::console
