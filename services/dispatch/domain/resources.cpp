#include "services/dispatch/domain/resources.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

using json::Json;
using json::ObjectReader;

constexpr std::int64_t kNodesMax = 10'000;
constexpr std::int64_t kTasksPerNodeMax = 1'000'000;  // the machine itself says how many are too many
constexpr std::int64_t kCoresPerTaskMax = 1'024;
constexpr std::int64_t kGpusPerNodeMax = 64;
constexpr std::int64_t kTimeMax_s = 365LL * 24 * 3600;
constexpr std::int64_t kMemoryMibMax = 64LL << 20;

Result<std::int64_t> parse_memory(const std::string& text, const std::string& field) {
    std::int64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const std::string unit(end, text.data() + text.size());
    const std::int64_t mib = unit == "MiB" ? 1 : unit == "GiB" ? 1024 : unit == "TiB" ? 1024 * 1024 : 0;
    if (error != std::errc() || mib == 0 || count < 1 || count > kMemoryMibMax / mib)
        return invalid_argument(field, "must be a size such as 480GiB or 900MiB, got " + in_quotes(text));
    return count * mib;
}

std::string memory_text(std::int64_t mib) {
    return mib % 1024 == 0 ? std::to_string(mib / 1024) + "GiB" : std::to_string(mib) + "MiB";
}

}  // namespace

std::int64_t notice_s(std::int64_t time_s) {
    return std::min<std::int64_t>(300, std::max<std::int64_t>(1, time_s / 5));
}

std::string time_text(std::int64_t seconds) {
    constexpr std::int64_t kHour = 3600;
    constexpr std::int64_t kDay = 24 * kHour;
    char text[40];
    if (seconds >= kDay)
        std::snprintf(text, sizeof text, "%lld-%02lld:%02lld:%02lld", static_cast<long long>(seconds / kDay),
                      static_cast<long long>(seconds % kDay / kHour), static_cast<long long>(seconds % kHour / 60),
                      static_cast<long long>(seconds % 60));
    else
        std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(seconds / kHour),
                      static_cast<long long>(seconds % kHour / 60), static_cast<long long>(seconds % 60));
    return text;
}

// sbatch(1), --time: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and so on.
Result<std::int64_t> parse_time(const std::string& text, const std::string& field) {
    const Error wrong = invalid_argument(field, "must be a time such as 2:00:00 or 1-12:00:00, got " + in_quotes(text));
    std::string_view rest = text;
    const auto number = [](std::string_view digits) -> std::int64_t {
        std::int64_t value = -1;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return error == std::errc() && end == digits.data() + digits.size() && value < 1'000'000 ? value : -1;
    };
    std::int64_t days = 0;
    const std::size_t dash = rest.find('-');
    if (dash != std::string_view::npos) {
        days = number(rest.substr(0, dash));
        rest.remove_prefix(dash + 1);
    }
    std::vector<std::int64_t> parts;
    for (const std::string_view part : split(rest, ':')) parts.push_back(number(part));
    if (days < 0 || parts.size() > 3 || std::any_of(parts.begin(), parts.end(), [](auto part) { return part < 0; }))
        return wrong;
    // Without days the last one or two are minutes and seconds, with days the first is hours.
    std::int64_t hours = 0, minutes = 0, seconds = 0;
    if (dash != std::string_view::npos || parts.size() == 3) {
        hours = parts[0];
        minutes = parts.size() > 1 ? parts[1] : 0;
        seconds = parts.size() > 2 ? parts[2] : 0;
    } else {
        minutes = parts[0];
        seconds = parts.size() > 1 ? parts[1] : 0;
    }
    const std::int64_t total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
    return total >= 1 && total <= kTimeMax_s ? Result<std::int64_t>(total) : Result<std::int64_t>(wrong);
}

Result<Resources> parse_resources(const Json& value, const std::string& field) {
    ObjectReader reader(value, field);
    Resources resources;
    resources.queue = reader.string_or("queue", "");
    resources.nodes = reader.integer_or("nodes", 1, 1, kNodesMax);
    resources.tasks_per_node = reader.integer_or("tasks_per_node", 1, 1, kTasksPerNodeMax);
    resources.cores_per_task = reader.integer_or("cores_per_task", 0, 1, kCoresPerTaskMax);
    resources.gpus_per_node = reader.integer_or("gpus_per_node", 0, 1, kGpusPerNodeMax);
    const std::string memory = reader.string_or("memory", "");
    const std::string time = reader.string_or("time", "");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (!memory.empty()) {
        ATOLL_TRY(resources.memory_mib, parse_memory(memory, field + ".memory"));
    }
    if (!time.empty()) {
        ATOLL_TRY(resources.time_s, parse_time(time, field + ".time"));
    }
    return resources;
}

Json to_json(const Resources& resources) {
    Json value = {{"nodes", resources.nodes}, {"tasks_per_node", resources.tasks_per_node}};
    if (!resources.queue.empty()) value["queue"] = resources.queue;
    if (resources.cores_per_task > 0) value["cores_per_task"] = resources.cores_per_task;
    if (resources.gpus_per_node > 0) value["gpus_per_node"] = resources.gpus_per_node;
    if (resources.memory_mib > 0) value["memory"] = memory_text(resources.memory_mib);
    if (resources.time_s > 0) value["time"] = time_text(resources.time_s);
    return value;
}

}  // namespace atl::dispatch
