#pragma once

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl {

// A file system of a gigabyte, where what asks for temporary directories gets them.
class SmallDisk {
  public:
    SmallDisk() {
        is_mounted_ = ::geteuid() == 0 &&
                      run_command({"mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", place_.path()})->exit_code == 0;
        if (is_mounted_) ::setenv("TMPDIR", place_.path().c_str(), 1);
    }
    ~SmallDisk() {
        if (before_.empty())
            ::unsetenv("TMPDIR");
        else
            ::setenv("TMPDIR", before_.c_str(), 1);
        if (is_mounted_) (void)run_command({"umount", place_.path()});
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;

    bool is_mounted() const { return is_mounted_; }
    // Leaves not a byte.
    void fill() const {
        const UniqueFd filler(
            ::open((place_.path() / "filler").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
        const std::string block(1 << 20, 'x');
        for (std::size_t size = block.size(); size > 0; size /= 2)
            while (::write(filler.get(), block.data(), size) > 0) continue;
    }
    void make_room() const { std::filesystem::remove(place_.path() / "filler"); }
    std::uint64_t free_bytes() const {
        struct statvfs found{};
        check(::statvfs(place_.path().c_str(), &found) == 0, "cannot look at the disk");
        return std::uint64_t{found.f_bavail} * found.f_frsize;
    }

  private:
    std::string before_ = std::getenv("TMPDIR") == nullptr ? "" : std::getenv("TMPDIR");
    TemporaryDirectory place_{"atoll-disk"};
    bool is_mounted_ = false;
};

}  // namespace atl
