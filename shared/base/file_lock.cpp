#include "shared/base/file_lock.h"

#include <sys/file.h>

#include <cerrno>

namespace atl {

bool try_lock(const UniqueFd& fd) {
    return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

}  // namespace atl
