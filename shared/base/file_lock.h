#pragma once

#include <filesystem>

#include "shared/base/file.h"

namespace atl {

// Takes the lock of an open file or directory, which is held until the descriptor is closed, by whatever end of the
// process. False: another process has it. A file system without locks grants it.
[[nodiscard]] bool try_lock(const UniqueFd& fd);

// Opens a directory that exists and takes its lock. kConflict: another process has it. Other errors are those of
// file_error().
Result<UniqueFd> lock_directory(const std::filesystem::path& directory);

// Whether `path` still leads to this open file or directory. It does not once that was renamed, removed or replaced.
bool leads_to(const std::filesystem::path& path, const UniqueFd& fd);

}  // namespace atl
