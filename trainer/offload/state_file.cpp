#include "trainer/offload/state_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace atl::offload {
namespace {

// A new file without a name; `path` becomes the one that it had.
Result<UniqueFd> create_unnamed(const std::filesystem::path& directory, const std::string& name,
                                std::filesystem::path& path) {
    std::string text = (directory / (name + ".XXXXXX")).string();
    UniqueFd file(::mkostemp(text.data(), O_CLOEXEC));
    path = text;
    if (!file.valid()) return file_error(path, "create");
    if (::unlink(text.c_str()) != 0) return file_error(path, "unlink");
    // Refused by file systems that have no other way than through memory.
    const int flags = ::fcntl(file.get(), F_GETFL);
    if (flags >= 0) ::fcntl(file.get(), F_SETFL, flags | O_DIRECT);
    return file;
}

}  // namespace

std::uint64_t page_checksum(std::span<const std::byte> bytes) {
    constexpr std::size_t kLanes = 4;
    constexpr std::uint64_t kPrime = 0x9E3779B185EBCA87U;
    std::array<std::uint64_t, kLanes> lanes = {1, 2, 3, 4};
    std::array<std::uint64_t, kLanes> words{};
    for (std::size_t at = 0; at + sizeof words <= bytes.size(); at += sizeof words) {
        std::memcpy(words.data(), bytes.data() + at, sizeof words);
        for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = std::rotl((lanes[i] ^ words[i]) * kPrime, 31);
    }
    std::uint64_t sum = bytes.size();
    for (const std::uint64_t lane : lanes) sum = std::rotl((sum ^ lane) * kPrime, 31);
    return sum;
}

Result<StateFile> StateFile::create(const std::filesystem::path& directory, const std::string& name,
                                    std::span<const std::int64_t> record_bytes) {
    StateFile made;
    ATOLL_TRY(made.file_, create_unnamed(directory, name, made.path_));
    std::int64_t end = 0;
    std::vector<std::byte> zeros;
    for (const std::int64_t bytes : record_bytes) {
        const std::int64_t size = padded(bytes);
        const bool as_before = !made.records_.empty() && made.records_.back().size == size;
        zeros.resize(static_cast<std::size_t>(size));
        made.records_.push_back({end, size, as_before ? made.records_.back().checksum : page_checksum(zeros)});
        end += size;
    }
    ATOLL_RETURN_IF_ERROR(made.reserve(end));
    return made;
}

Status StateFile::reserve(std::int64_t bytes) const {
    if (bytes == 0) return {};
    if (::fallocate(file_.get(), 0, 0, bytes) == 0) return {};
    // Where nothing can be reserved, a full disk shows when it is written to.
    if (errno == EOPNOTSUPP && ::ftruncate(file_.get(), bytes) == 0) return {};
    return file_error(path_, "reserve " + std::to_string(bytes) + " bytes for");
}

Status StateFile::read(std::size_t first, std::size_t count, std::byte* buffer) const {
    const Record& last = records_[first + count - 1];
    const std::int64_t begin = records_[first].offset;
    const auto size = static_cast<std::size_t>(last.offset + last.size - begin);
    ATOLL_RETURN_IF_ERROR(read_at(file_.get(), static_cast<std::uint64_t>(begin), {buffer, size}, path_));
    for (const Record& record : std::span(records_).subspan(first, count)) {
        const std::span bytes(buffer + (record.offset - begin), static_cast<std::size_t>(record.size));
        if (page_checksum(bytes) == record.checksum) continue;
        return Error{ErrorCode::kInternal,
                     "the optimizer's state in " + path_.string() + " was changed on the disk: bytes " +
                         std::to_string(record.offset) + " to " + std::to_string(record.offset + record.size) +
                         " are not what was written",
                     path_.string()};
    }
    return {};
}

Status StateFile::write(std::size_t first, std::size_t count, const std::byte* buffer) {
    const std::int64_t begin = records_[first].offset;
    std::int64_t end = begin;
    for (Record& record : std::span(records_).subspan(first, count)) {
        record.checksum = page_checksum({buffer + (record.offset - begin), static_cast<std::size_t>(record.size)});
        end = record.offset + record.size;
    }
    const std::string_view bytes(reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(end - begin));
    return write_at(file_.get(), static_cast<std::uint64_t>(begin), bytes, path_);
}

}  // namespace atl::offload
