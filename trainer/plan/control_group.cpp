#include "trainer/plan/control_group.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "shared/base/list.h"

namespace atl::plan {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// What the files of a version are called.
struct GroupFiles {
    const char* limit;
    const char* used;
    const char* active_cache;  // lines of memory.stat, descendants included
    const char* inactive_cache;
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file",
                                  "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "active_file", "inactive_file"};

// Nothing for "max", or when there is no such file.
std::optional<std::int64_t> bytes_in(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::int64_t value = 0;
    if (!(file >> value)) return std::nullopt;
    return value;
}

std::int64_t page_cache(const std::filesystem::path& directory, const GroupFiles& files) {
    std::ifstream file(directory / "memory.stat");
    std::int64_t sum = 0;
    std::string name;
    for (std::int64_t value = 0; file >> name >> value;) {
        if (name == files.active_cache || name == files.inactive_cache) sum += value;
    }
    return sum;
}

std::int64_t room_in(const std::filesystem::path& directory, const GroupFiles& files) {
    const auto limit = bytes_in(directory / files.limit);
    const auto used = bytes_in(directory / files.used);
    if (!limit || !used) return kNoLimit;
    const std::int64_t kept = std::max<std::int64_t>(0, *used - page_cache(directory, files));
    return std::max<std::int64_t>(0, *limit - kept);
}

// Of the mounted hierarchy and every group from there down to `group`.
std::int64_t least_room(std::filesystem::path directory, const std::filesystem::path& group, const GroupFiles& files) {
    std::int64_t least = room_in(directory, files);
    for (const auto& name : group.relative_path()) {
        if (name == "..") break;  // beside what is mounted here
        directory /= name;
        least = std::min(least, room_in(directory, files));
    }
    return least;
}

// Of a line "HIERARCHY:CONTROLLERS:PATH"; version 2 has no controllers there.
std::int64_t room_by_line(const std::filesystem::path& root, std::string_view line) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) return kNoLimit;
    const std::vector<std::string> controllers = split_list(line.substr(first + 1, second - first - 1));
    const std::filesystem::path group(line.substr(second + 1));
    if (controllers.empty()) return least_room(root, group, kVersion2);
    const bool memory = std::ranges::find(controllers, "memory") != controllers.end();
    return memory ? least_room(root / "memory", group, kVersion1) : kNoLimit;
}

}  // namespace

std::int64_t control_group_room(const std::filesystem::path& root, std::string_view groups) {
    std::int64_t least = kNoLimit;
    while (!groups.empty()) {
        const std::size_t end = std::min(groups.find('\n'), groups.size());
        least = std::min(least, room_by_line(root, groups.substr(0, end)));
        groups.remove_prefix(std::min(end + 1, groups.size()));
    }
    return least;
}

}  // namespace atl::plan
