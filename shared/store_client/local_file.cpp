#include "shared/store_client/local_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace atl::store_client {

Result<LocalFile> LocalFile::open(const std::filesystem::path& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info{};
    if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return file_error(path, "open");
    return LocalFile(path, std::move(fd), static_cast<std::uint64_t>(info.st_size));
}

Result<LocalFile> LocalFile::open_for_writing(const std::filesystem::path& path, std::uint64_t size) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return file_error(path, "create");
    return LocalFile(path, std::move(fd), size);
}

Result<std::string> LocalFile::read(std::uint64_t offset, std::uint64_t count) const {
    std::string bytes(count, '\0');
    ATOLL_RETURN_IF_ERROR(read_at(fd_.get(), offset, std::as_writable_bytes(std::span(bytes)), path_));
    return bytes;
}

Status LocalFile::write(std::uint64_t offset, std::string_view bytes) const {
    return write_at(fd_.get(), offset, bytes, path_);
}

Status LocalFile::sync() const {
    if (::fsync(fd_.get()) != 0) return file_error(path_, "sync");
    return {};
}

bool LocalFile::is_hole(std::uint64_t offset, std::uint64_t count) const {
    const off_t data = ::lseek(fd_.get(), static_cast<off_t>(offset), SEEK_DATA);
    if (data < 0) return errno == ENXIO;  // no data up to the end
    return static_cast<std::uint64_t>(data) >= offset + count;
}

std::vector<ChunkPlace> chunk_places(const Manifest& manifest) {
    std::vector<ChunkPlace> places;
    for (std::size_t file = 0; file < manifest.files.size(); ++file) {
        std::uint64_t offset = 0;
        for (const Chunk& chunk : manifest.files[file].chunks) {
            places.push_back({file, offset, chunk});
            offset += chunk.size;
        }
    }
    return places;
}

}  // namespace atl::store_client
