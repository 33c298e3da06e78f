#include "trainer/optim/state_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace atl::optim {
namespace {

// Moves all of [offset, offset + size) by pread or pwrite, which may do less than they are asked.
template <class Call>
Status transfer(const std::filesystem::path& path, const char* verb, std::int64_t offset, std::int64_t size,
                Call call) {
    for (std::int64_t done = 0; done < size;) {
        const ssize_t moved = call(done, static_cast<std::size_t>(size - done), static_cast<off_t>(offset + done));
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return file_error(path, verb);
        if (moved == 0) {
            return Error{ErrorCode::kInternal,
                         "cannot " + std::string(verb) + " " + path.string() + ": it ends at byte " +
                             std::to_string(offset + done) + " of " + std::to_string(offset + size),
                         path.string()};
        }
        done += moved;
    }
    return {};
}

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
    ATOLL_RETURN_IF_ERROR(
        transfer(path_, "read", begin, last.offset + last.size - begin,
                 [&](auto done, auto size, auto offset) { return ::pread(file_.get(), buffer + done, size, offset); }));
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
    return transfer(path_, "write", begin, end - begin, [&](auto done, auto size, auto offset) {
        return ::pwrite(file_.get(), buffer + done, size, offset);
    });
}

}  // namespace atl::optim
