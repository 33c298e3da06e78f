#include "shared/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "shared/base/file.h"

namespace atl {
Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return file_error(path, "open");
    struct stat status{};
    if (::fstat(fd.get(), &status) != 0) return file_error(path, "stat");
    if (!S_ISREG(status.st_mode)) return invalid_argument(path.string(), path.string() + " is not a regular file");
    MappedFile file;
    if (status.st_size == 0) return file;
    void* const address =
        ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (address == MAP_FAILED) return file_error(path, "map");
    file.address_ = address;
    file.size_ = static_cast<std::size_t>(status.st_size);
    return file;
}

MappedFile::~MappedFile() {
    if (address_ != nullptr) ::munmap(address_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    return *this;
}

}  // namespace atl
