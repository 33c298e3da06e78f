#include "trainer/importer/torch_zip.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/text.h"
#include "trainer/importer/pickle.h"

// The format: PKWARE's APPNOTE.TXT, sections 4.3.7 (local header), 4.3.12 (directory), 4.3.14 to 4.3.16 (its end) and
// 4.5.3 (zip64).
namespace atl::importer {
namespace {

constexpr std::uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20, kEntryBytes = 46, kLocalBytes = 30;
constexpr std::uint32_t kEndMagic = 0x06054b50, kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50,
                        kEntryMagic = 0x02014b50, kLocalMagic = 0x04034b50;
constexpr std::uint64_t kIn64 = 0xffffffff;  // "the number is in the zip64 field"
constexpr std::uint64_t kZip64Field = 1;
constexpr std::uint64_t kEncrypted = 1;

// Numbers and texts at places of the archive. A place outside of it reads as zero: magics and bounds are checked.
class Bytes {
  public:
    explicit Bytes(std::span<const std::byte> bytes) : bytes_(bytes) {}

    bool holds(std::uint64_t at, std::uint64_t count) const { return at <= size() && count <= size() - at; }
    std::uint64_t number(std::uint64_t at, std::uint64_t count) const {
        std::uint64_t value = 0;
        if (!holds(at, count)) return 0;
        for (std::uint64_t i = 0; i < count; ++i)
            value |= static_cast<std::uint64_t>(bytes_[static_cast<std::size_t>(at + i)]) << (8 * i);
        return value;
    }
    std::span<const std::byte> part(std::uint64_t at, std::uint64_t count) const {
        return bytes_.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
    }
    std::string text(std::uint64_t at, std::uint64_t count) const {
        const auto found = part(at, count);
        return {reinterpret_cast<const char*>(found.data()), found.size()};
    }
    std::uint64_t size() const { return bytes_.size(); }

  private:
    std::span<const std::byte> bytes_;
};

struct Directory {
    std::uint64_t begin = 0, end = 0, count = 0;
};

struct Member {
    std::string name;
    std::uint64_t header = 0;  // of its local header
    std::uint64_t begin = 0, size = 0;
};

// The archive's last bytes say where its directory is. torch.save writes no comment after them.
Result<Directory> find_directory(const Bytes& bytes) {
    const std::uint64_t end = bytes.size() - kEndBytes;
    if (bytes.size() < kEndBytes || bytes.number(end, 4) != kEndMagic)
        return malformed("is not a zip archive, or it is cut off (files of PyTorch before 1.6 are not zip archives)");
    Directory directory;
    directory.count = bytes.number(end + 10, 2);
    directory.begin = bytes.number(end + 16, 4);
    directory.end = directory.begin + bytes.number(end + 12, 4);
    const std::uint64_t locator = end - kLocator64Bytes;
    if (end >= kLocator64Bytes && bytes.number(locator, 4) == kLocator64Magic) {
        const std::uint64_t end64 = bytes.number(locator + 8, 8);
        if (!bytes.holds(end64, kEnd64Bytes) || bytes.number(end64, 4) != kEnd64Magic)
            return malformed("its zip64 directory is not where it should be");
        directory.count = bytes.number(end64 + 32, 8);
        directory.begin = bytes.number(end64 + 48, 8);
        if (__builtin_add_overflow(directory.begin, bytes.number(end64 + 40, 8), &directory.end))
            return malformed("its directory lies outside of the file");
    }
    if (directory.end > end) return malformed("its directory lies outside of the file");
    return directory;
}

// Replaces what is too large for 32 bits by the numbers of the zip64 field, in their fixed order.
Status read_zip64(const Bytes& bytes, std::uint64_t at, std::uint64_t end,
                  std::initializer_list<std::uint64_t*> numbers) {
    if (std::none_of(numbers.begin(), numbers.end(), [](const auto* number) { return *number == kIn64; })) return {};
    while (at + 4 <= end && bytes.number(at, 2) != kZip64Field) at += 4 + bytes.number(at + 2, 2);
    const std::uint64_t field_end = at + 4 + bytes.number(at + 2, 2);
    at += 4;
    for (std::uint64_t* number : numbers) {
        if (*number != kIn64) continue;
        if (at + 8 > field_end || field_end > end) return malformed("its zip64 sizes are missing");
        *number = bytes.number(at, 8);
        at += 8;
    }
    return {};
}

// Where the bytes begin: after the local header, whose name must be the directory's.
Status find_bytes(const Bytes& bytes, std::uint64_t directory_begin, Member& member) {
    const std::uint64_t name_size = bytes.number(member.header + 26, 2);
    if (!bytes.holds(member.header, kLocalBytes) || bytes.number(member.header, 4) != kLocalMagic ||
        !bytes.holds(member.header + kLocalBytes, name_size) ||
        bytes.text(member.header + kLocalBytes, name_size) != member.name)
        return malformed("the header of its member " + in_quotes(member.name) + " is not where it should be");
    member.begin = member.header + kLocalBytes + name_size + bytes.number(member.header + 28, 2);
    if (member.begin > directory_begin || member.size > directory_begin - member.begin)
        return malformed("its member " + in_quotes(member.name) + " lies outside of the file");
    return {};
}

// The directory's entry at `at`, which moves to the next.
Result<Member> read_entry(const Bytes& bytes, const Directory& directory, std::uint64_t& at) {
    const std::uint64_t name_size = bytes.number(at + 28, 2), extra_size = bytes.number(at + 30, 2);
    const std::uint64_t extra = at + kEntryBytes + name_size, next = extra + extra_size + bytes.number(at + 32, 2);
    if (at + kEntryBytes > directory.end || next > directory.end || bytes.number(at, 4) != kEntryMagic)
        return malformed("its directory is damaged");
    Member member{.name = bytes.text(at + kEntryBytes, name_size)};
    if ((bytes.number(at + 8, 2) & kEncrypted) != 0)
        return malformed("its member " + in_quotes(member.name) + " is encrypted");
    std::uint64_t stored = bytes.number(at + 20, 4);
    member.size = bytes.number(at + 24, 4);
    member.header = bytes.number(at + 42, 4);
    ATOLL_RETURN_IF_ERROR(read_zip64(bytes, extra, extra + extra_size, {&member.size, &stored, &member.header}));
    if (bytes.number(at + 10, 2) != 0 || stored != member.size)
        return malformed("its member " + in_quotes(member.name) + " is compressed, which torch.save does not do");
    ATOLL_RETURN_IF_ERROR(find_bytes(bytes, directory.begin, member));
    at = next;
    return member;
}

Status check_overlap(std::vector<Member> members) {
    std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.header < b.header; });
    for (std::size_t i = 1; i < members.size(); ++i) {
        if (members[i].header < members[i - 1].begin + members[i - 1].size)
            return malformed("its member " + in_quotes(members[i].name) + " overlaps another");
    }
    return {};
}

}  // namespace

Result<ZipMembers> read_stored_zip(std::span<const std::byte> archive) {
    const Bytes bytes(archive);
    ATOLL_TRY(const Directory directory, find_directory(bytes));
    std::vector<Member> members;
    std::uint64_t at = directory.begin;
    for (std::uint64_t entry = 0; entry < directory.count; ++entry) {
        ATOLL_TRY(members.emplace_back(), read_entry(bytes, directory, at));
    }
    if (at != directory.end) return malformed("its directory is damaged");
    ATOLL_RETURN_IF_ERROR(check_overlap(members));
    ZipMembers views;
    for (const Member& member : members) {
        if (!views.emplace(member.name, bytes.part(member.begin, member.size)).second)
            return malformed("its member " + in_quotes(member.name) + " comes twice");
    }
    return views;
}

Result<StoredZip> StoredZip::open(const std::filesystem::path& path) {
    StoredZip zip;
    ATOLL_TRY(zip.file_, MappedFile::open(path));
    auto members = read_stored_zip(zip.file_.bytes());
    if (!members.ok()) return invalid_argument(path.string(), path.string() + ": " + members.error().message);
    zip.members_ = std::move(members).value();
    return zip;
}

}  // namespace atl::importer
