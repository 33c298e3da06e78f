#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "shared/base/result.h"

namespace atl::text {

// kInvalidArgument unless it is a regular file: inputs are read by position, and more than once. kNotFound.
Status check_input(const std::filesystem::path& path);

// The bytes of a file, decompressed when it is gzip or zstd (told by its first bytes, not by its name). Memory: for
// zstd the window that the file was compressed with, at most 2 GiB (`zstd --long=31`); else below 1 MiB. Errors name
// the file. Not thread-safe.
class ByteSource {
  public:
    virtual ~ByteSource() = default;
    static Result<std::unique_ptr<ByteSource>> open(const std::filesystem::path& path);

    // Up to out.size() bytes, 0 at the end. A compressed file that stops early is an error.
    virtual Result<std::size_t> read(std::span<char> out) = 0;
    // Bytes of the file itself that have been consumed, for progress.
    virtual std::uint64_t consumed() const = 0;
    // Passes over the next `count` bytes. kInvalidArgument: the file ends before.
    virtual Status skip(std::uint64_t count) = 0;
};

}  // namespace atl::text
