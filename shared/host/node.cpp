#include "shared/host/node.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>

#include "shared/host/control_group.h"

namespace atl::host {
namespace {

// Files of /proc and /sys have no size to go by.
std::string read_all(const char* path) {
    std::string text;
    if (std::FILE* file = std::fopen(path, "re")) {
        std::array<char, 4096> block{};
        for (std::size_t count = 0; (count = std::fread(block.data(), 1, block.size(), file)) > 0;) {
            text.append(block.data(), count);
        }
        std::fclose(file);
    }
    return text;
}

std::optional<std::int64_t> number(std::string_view text) {
    std::int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
    return value;
}

}  // namespace

std::int64_t kilobyte_field(std::string_view text, std::string_view name) {
    const std::string key = std::string(name) + ":";
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        std::string_view line = text.substr(at, end - at);
        at = end + 1;
        if (!line.starts_with(key)) continue;
        line.remove_prefix(std::min(line.find_first_of("0123456789"), line.size()));
        return number(line).value_or(0) * 1024;
    }
    return 0;
}

std::int64_t resident_bytes() {
    return kilobyte_field(read_all("/proc/self/status"), "VmRSS");
}

std::int64_t resident_peak_bytes() {
    return kilobyte_field(read_all("/proc/self/status"), "VmHWM");
}

std::int64_t available_bytes() {
    return std::min(kilobyte_field(read_all("/proc/meminfo"), "MemAvailable"),
                    control_group_room("/sys/fs/cgroup", read_all("/proc/self/cgroup")));
}

std::string cpu_model() {
    const std::string text = read_all("/proc/cpuinfo");
    const std::size_t at = text.find("model name");
    if (at == std::string::npos) return "unknown";
    const std::size_t colon = text.find(": ", at);
    return text.substr(colon + 2, text.find('\n', colon) - colon - 2);
}

}  // namespace atl::host
