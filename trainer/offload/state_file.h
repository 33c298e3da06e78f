#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/result.h"

namespace atl::offload {

// A file of numbered records that stands in for memory as long as its process lives. It loses its name as soon as it
// is made, so nothing is left behind however the process ends. Reads and writes pass the page cache by where the file
// system can (O_DIRECT). A checksum of each record is kept in memory: bytes that changed on the disk, and a write that
// never got there, are found when the record is read.
//
// Different records may be read and written at the same time.
class StateFile {
  public:
    // Sizes in the file and buffers are multiples of it.
    static constexpr std::int64_t kPageBytes = 4096;
    static constexpr std::int64_t padded(std::int64_t bytes) {
        return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    }

    // In a directory that exists, with room for records of those sizes, all zeros. Errors name the file: no such
    // directory, no room.
    static Result<StateFile> create(const std::filesystem::path& directory, const std::string& name,
                                    std::span<const std::int64_t> record_bytes);
    StateFile(StateFile&&) = default;
    StateFile& operator=(StateFile&&) = default;
    virtual ~StateFile() = default;

    // Records [first, first + count), one behind the other, each padded to whole pages; the buffer begins at a page.
    // Errors name the file and what went wrong: of the device, an end that came early, a checksum that differs. Virtual
    // so that a test can hold a transfer up.
    virtual Status read(std::size_t first, std::size_t count, std::byte* buffer) const;
    virtual Status write(std::size_t first, std::size_t count, const std::byte* buffer);

    const std::filesystem::path& path() const { return path_; }

  private:
    struct Record {
        std::int64_t offset = 0;
        std::int64_t size = 0;  // padded
        std::uint64_t checksum = 0;
    };

    StateFile() = default;
    Status reserve(std::int64_t bytes) const;

    std::filesystem::path path_;  // that it had
    UniqueFd file_;
    std::vector<Record> records_;
};

// Of whole pages. Any change within eight bytes gives another one, other changes do but for chance.
std::uint64_t page_checksum(std::span<const std::byte> bytes);

}  // namespace atl::offload
