#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "shared/base/result.h"

namespace atl {

// "cannot WHAT PATH: REASON", with the path in `field`: kNotFound, kPermissionDenied (no right to it, or its file
// system is read-only), kInsufficientStorage (no space or quota left), else kInternal. `what` is a verb: "open",
// "write".
Error file_error(const std::filesystem::path& path, std::string_view what, const std::error_code& reason);
// The same from errno.
Error file_error(const std::filesystem::path& path, std::string_view what);

// The whole file as bytes, or an error of file_error().
Result<std::string> read_file(const std::filesystem::path& path);

// Writes beside the target, fsyncs, renames: readers see the old bytes or the new, also after a power cut.
Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes, unsigned mode = 0644);

// All of the bytes, or an error of file_error(): to where the descriptor stands, or at an offset. `path` is for
// messages.
Status write_all(int fd, std::string_view bytes, const std::filesystem::path& path);
Status write_at(int fd, std::uint64_t offset, std::string_view bytes, const std::filesystem::path& path);
// Fills `into` from an offset; kInternal also when the file ends before.
Status read_at(int fd, std::uint64_t offset, std::span<std::byte> into, const std::filesystem::path& path);

// A file's bytes, or a directory's entries (a rename is durable only when its directory is), outlive a power cut.
Status sync_path(const std::filesystem::path& path);

// Owns a POSIX file descriptor.
class UniqueFd {
  public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        if (this != &other) reset(other.release());
        return *this;
    }
    UniqueFd(const UniqueFd&) = delete;
    UniqueFd& operator=(const UniqueFd&) = delete;
    ~UniqueFd() { reset(); }

    int get() const { return fd_; }
    bool valid() const { return fd_ >= 0; }
    int release() {
        const int fd = fd_;
        fd_ = -1;
        return fd;
    }
    void reset(int fd = -1);

  private:
    int fd_ = -1;
};

// A directory under $TMPDIR (or /tmp) that is removed with everything in it when the object dies.
class TemporaryDirectory {
  public:
    explicit TemporaryDirectory(std::string_view prefix = "atoll");
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory();
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

}  // namespace atl
