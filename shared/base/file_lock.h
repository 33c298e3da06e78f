#pragma once

#include "shared/base/file.h"

namespace atl {

// Takes the lock of an open file or directory, which is held until the descriptor is closed, by whatever end of the
// process. False: another process has it. A file system without locks grants it.
[[nodiscard]] bool try_lock(const UniqueFd& fd);

}  // namespace atl
