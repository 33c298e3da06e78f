#include "shared/host/control_group.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/text.h"

namespace atl::host {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
constexpr double kNoQuota = std::numeric_limits<double>::infinity();

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
std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
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
    const auto limit = number_in(directory / files.limit);
    const auto used = number_in(directory / files.used);
    if (!limit || !used) return kNoLimit;
    const std::int64_t kept = std::max<std::int64_t>(0, *used - page_cache(directory, files));
    return std::max<std::int64_t>(0, *limit - kept);
}

// As "200000 100000", or "max 100000".
double cores_by_cpu_max(const std::filesystem::path& directory) {
    std::ifstream file(directory / "cpu.max");
    double quota = 0, period = 0;
    return file >> quota >> period && period > 0 ? quota / period : kNoQuota;
}

double cores_by_cfs(const std::filesystem::path& directory) {
    const auto quota = number_in(directory / "cpu.cfs_quota_us");  // -1: none
    const auto period = number_in(directory / "cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) return kNoQuota;
    return static_cast<double>(*quota) / static_cast<double>(*period);
}

enum class Version { k1, k2 };
using Visit = std::function<void(const std::filesystem::path& directory, Version version)>;

// The mounted hierarchy and every group from there down to `group`.
void visit_down(std::filesystem::path directory, const std::filesystem::path& group, Version version,
                const Visit& visit) {
    visit(directory, version);
    for (const auto& name : group.relative_path()) {
        if (name == "..") break;  // beside what is mounted here
        directory /= name;
        visit(directory, version);
    }
}

// Of a line "HIERARCHY:CONTROLLERS:PATH"; version 2 has no controllers there.
void visit_line(const std::filesystem::path& root, std::string_view line, const std::string& controller,
                const Visit& visit) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) return;
    const std::vector<std::string> controllers = split_list(line.substr(first + 1, second - first - 1));
    const std::filesystem::path group(line.substr(second + 1));
    if (controllers.empty()) return visit_down(root, group, Version::k2, visit);
    if (std::ranges::find(controllers, controller) == controllers.end()) return;
    visit_down(root / controller, group, Version::k1, visit);
}

void visit_groups(const std::filesystem::path& root, std::string_view groups, const std::string& controller,
                  const Visit& visit) {
    while (!groups.empty()) {
        const std::size_t end = std::min(groups.find('\n'), groups.size());
        visit_line(root, groups.substr(0, end), controller, visit);
        groups.remove_prefix(std::min(end + 1, groups.size()));
    }
}

}  // namespace

std::int64_t control_group_room(const std::filesystem::path& root, std::string_view groups) {
    std::int64_t least = kNoLimit;
    visit_groups(root, groups, "memory", [&](const std::filesystem::path& directory, Version version) {
        least = std::min(least, room_in(directory, version == Version::k2 ? kVersion2 : kVersion1));
    });
    return least;
}

double control_group_cores(const std::filesystem::path& root, std::string_view groups) {
    double least = kNoQuota;
    visit_groups(root, groups, "cpu", [&](const std::filesystem::path& directory, Version version) {
        least = std::min(least, version == Version::k2 ? cores_by_cpu_max(directory) : cores_by_cfs(directory));
    });
    return least;
}

}  // namespace atl::host
