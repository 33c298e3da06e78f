#include "shared/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace atl {
Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return file_error(path, "open");
    struct stat status{};
    if (::fstat(fd.get(), &status) != 0) return file_error(path, "stat");
    if (!S_ISREG(status.st_mode)) return invalid_argument(path.string(), path.string() + " is not a regular file");
    MappedFile file;
    file.path_ = path;
    file.fd_ = std::move(fd);
    if (status.st_size == 0) return file;
    void* const address =
        ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file.fd_.get(), 0);
    if (address == MAP_FAILED) return file_error(path, "map");
    file.address_ = address;
    file.size_ = static_cast<std::size_t>(status.st_size);
    return file;
}

Status MappedFile::read(std::uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error(path_, "read");
        if (got == 0) return invalid_argument(path_.string(), path_.string() + " has become shorter");
        out = out.subspan(static_cast<std::size_t>(got));
        offset += static_cast<std::uint64_t>(got);
    }
    return {};
}

MappedFile::~MappedFile() {
    if (address_ != nullptr) ::munmap(address_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::move(other.fd_)),
      address_(std::exchange(other.address_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    return *this;
}

}  // namespace atl
