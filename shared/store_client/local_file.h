#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/store_client/manifest.h"

namespace atl::store_client {

// A file that is read and written in chunks, at offsets, by several threads.
class LocalFile {
  public:
    static Result<LocalFile> open(const std::filesystem::path& path);
    // Creates the file or keeps what it holds; makes it `size` bytes long.
    static Result<LocalFile> open_for_writing(const std::filesystem::path& path, std::uint64_t size);

    std::uint64_t size() const { return size_; }
    Result<std::string> read(std::uint64_t offset, std::uint64_t count) const;  // kInternal if it ends before
    Status write(std::uint64_t offset, std::string_view bytes) const;  // kInsufficientStorage: the disk is full
    Status sync() const;
    bool is_hole(std::uint64_t offset, std::uint64_t count) const;  // never written, as far as the file system knows

  private:
    LocalFile(std::filesystem::path path, UniqueFd fd, std::uint64_t size)
        : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}
    std::filesystem::path path_;
    UniqueFd fd_;
    std::uint64_t size_;
};

// Where one chunk of a version lies in its files.
struct ChunkPlace {
    std::size_t file;
    std::uint64_t offset;
    Chunk chunk;
};
std::vector<ChunkPlace> chunk_places(const Manifest& manifest);

}  // namespace atl::store_client
