#include "shared/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace atl {
namespace {

ErrorCode code_of(int error_number) {
    switch (error_number) {
        case ENOENT:
        case ENOTDIR:
            return ErrorCode::kNotFound;
        case EACCES:
        case EPERM:
        case EROFS:
            return ErrorCode::kPermissionDenied;
        case ENOSPC:
        case EDQUOT:
            return ErrorCode::kInsufficientStorage;
        default:
            return ErrorCode::kInternal;
    }
}

}  // namespace

Error file_error(const std::filesystem::path& path, std::string_view what, const std::error_code& reason) {
    return {code_of(reason.value()), "cannot " + std::string(what) + " " + path.string() + ": " + reason.message(),
            path.string()};
}

Error file_error(const std::filesystem::path& path, std::string_view what) {
    return file_error(path, what, std::error_code(errno, std::generic_category()));
}

Status write_all(int fd, std::string_view bytes, const std::filesystem::path& path) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(fd, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return file_error(path, "write");
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

Status write_at(int fd, std::uint64_t offset, std::string_view bytes, const std::filesystem::path& path) {
    while (!bytes.empty()) {
        const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return file_error(path, "write");
        offset += static_cast<std::uint64_t>(written);
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

Status read_at(int fd, std::uint64_t offset, std::span<std::byte> into, const std::filesystem::path& path) {
    while (!into.empty()) {
        const ssize_t got = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error(path, "read");
        if (got == 0) return Error{ErrorCode::kInternal, path.string() + " became shorter", path.string()};
        offset += static_cast<std::uint64_t>(got);
        into = into.subspan(static_cast<std::size_t>(got));
    }
    return {};
}

Status sync_path(const std::filesystem::path& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid() || ::fsync(fd.get()) != 0) return file_error(path, "sync");
    return {};
}

Result<std::string> read_file(const std::filesystem::path& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return file_error(path, "open");
    std::string bytes;
    char block[65536];
    for (;;) {
        const ssize_t got = ::read(fd.get(), block, sizeof block);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error(path, "read");
        if (got == 0) return bytes;
        bytes.append(block, static_cast<std::size_t>(got));
    }
}

Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes, unsigned mode) {
    const std::filesystem::path directory = path.has_parent_path() ? path.parent_path() : ".";
    std::string temporary = (directory / ("." + path.filename().string() + ".XXXXXX")).string();
    UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
    if (!fd.valid()) return file_error(path, "create a temporary file for");
    Status status = write_all(fd.get(), bytes, path);
    if (status.ok() && (::fchmod(fd.get(), mode) != 0 || ::fsync(fd.get()) != 0)) status = file_error(path, "sync");
    if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) status = file_error(path, "rename to");
    if (!status.ok()) {
        ::unlink(temporary.c_str());
        return status;
    }
    (void)sync_path(directory);  // some file systems cannot
    return {};
}

void UniqueFd::reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
}

TemporaryDirectory::TemporaryDirectory(std::string_view prefix) {
    const char* base = std::getenv("TMPDIR");
    std::string name = std::string(base != nullptr ? base : "/tmp") + "/" + std::string(prefix) + ".XXXXXX";
    check(::mkdtemp(name.data()) != nullptr, "cannot create a temporary directory");
    path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace atl
