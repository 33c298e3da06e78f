#include "shared/metrics/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "shared/metrics/common.h"

namespace atl::metrics {
namespace {

// The fields of /proc/self/stat from the third on: the second, the program's name, may have blanks and brackets.
std::vector<std::string> read_stat() {
    std::ifstream file("/proc/self/stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
    return {std::istream_iterator<std::string>(rest), {}};
}

double field(const std::vector<std::string>& stat, std::size_t number) {  // as proc(5) numbers them
    return number - 3 < stat.size() ? std::strtod(stat[number - 3].c_str(), nullptr) : 0;
}

double now_s(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double count_open_files() {
    std::error_code error;
    const auto files = std::filesystem::directory_iterator("/proc/self/fd", error);
    return error ? 0 : static_cast<double>(std::distance(begin(files), end(files)) - 1);  // without its own
}

}  // namespace

void add_process(Registry& registry) {
    const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    registry.gauge(kCommon["process_start_time_seconds"])
        .Set(now_s(CLOCK_REALTIME) - now_s(CLOCK_BOOTTIME) + field(read_stat(), 22) / ticks);
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        registry.gauge(kCommon["process_max_fds"]).Set(static_cast<double>(files.rlim_cur));
    auto& cpu = registry.counter(kCommon["process_cpu_seconds_total"]);
    auto& resident = registry.gauge(kCommon["process_resident_memory_bytes"]);
    auto& all = registry.gauge(kCommon["process_virtual_memory_bytes"]);
    auto& open = registry.gauge(kCommon["process_open_fds"]);
    auto& threads = registry.gauge(kCommon["process_threads"]);
    registry.on_expose([&cpu, &resident, &all, &open, &threads, ticks] {
        const auto stat = read_stat();
        cpu.Increment((field(stat, 14) + field(stat, 15)) / ticks - cpu.Value());
        threads.Set(field(stat, 20));
        all.Set(field(stat, 23));
        resident.Set(field(stat, 24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
        open.Set(count_open_files());
    });
}

}  // namespace atl::metrics
