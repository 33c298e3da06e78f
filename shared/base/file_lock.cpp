#include "shared/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace atl {

bool try_lock(const UniqueFd& fd) {
    return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

Result<UniqueFd> lock_directory(const std::filesystem::path& directory) {
    const Error taken = conflict(
        "another process is writing into " + directory.string() + ": wait until it ends, or name another directory",
        directory.string());
    constexpr int kTries = 10;
    for (int i = 0; i < kTries; ++i) {
        UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!fd.valid()) return file_error(directory, "open");
        if (!try_lock(fd)) return taken;
        if (leads_to(directory, fd)) return fd;  // else its last owner has just removed it
    }
    return taken;
}

bool leads_to(const std::filesystem::path& path, const UniqueFd& fd) {
    struct stat by_path{}, by_fd{};
    return ::stat(path.c_str(), &by_path) == 0 && ::fstat(fd.get(), &by_fd) == 0 && by_path.st_dev == by_fd.st_dev &&
           by_path.st_ino == by_fd.st_ino;
}

}  // namespace atl
