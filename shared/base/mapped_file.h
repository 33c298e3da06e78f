#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "shared/base/file.h"
#include "shared/base/result.h"

namespace atl {

// A regular file's bytes, mapped read only. Immutable; any number of threads may read.
class MappedFile {
  public:
    // kNotFound, kInvalidArgument (no regular file) or kInternal, with the path in `field`.
    static Result<MappedFile> open(const std::filesystem::path& path);

    MappedFile() = default;
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    // Copies bytes from `offset` on without mapping their pages: faster for what is read once, and a file that has
    // become shorter (kInvalidArgument) or a broken disk is an error, not a signal.
    Status read(std::uint64_t offset, std::span<std::byte> out) const;

    std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address_), size_}; }

  private:
    std::filesystem::path path_;
    UniqueFd fd_;
    void* address_ = nullptr;  // null: an empty file
    std::size_t size_ = 0;
};

}  // namespace atl
