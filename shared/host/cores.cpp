#include "shared/host/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>

#include "shared/base/file.h"
#include "shared/host/control_group.h"

namespace atl::host {

std::string core_set(pid_t process) {
    constexpr int kProcessorsMax = 1 << 20;
    for (int count = CPU_SETSIZE; count <= kProcessorsMax; count *= 2) {  // the kernel's own set may be larger
        const std::size_t bytes = CPU_ALLOC_SIZE(count);
        cpu_set_t* const set = CPU_ALLOC(count);
        const bool fits = set != nullptr && ::sched_getaffinity(process, bytes, set) == 0;
        const bool is_too_small = !fits && errno == EINVAL;
        std::string found;
        for (int core = 0; fits && core < count; ++core) found += CPU_ISSET_S(core, bytes, set) ? '1' : '0';
        CPU_FREE(set);
        if (fits) return found.substr(0, found.rfind('1') + 1);
        if (!is_too_small) break;
    }
    return {};
}

int count_cores(const std::string& set) {
    return static_cast<int>(std::ranges::count(set, '1'));
}

double core_quota() {
    const auto groups = read_file("/proc/self/cgroup");
    return control_group_cores("/sys/fs/cgroup", groups.ok() ? *groups : "");
}

int usable_cores() {
    return std::max(1, static_cast<int>(std::min<double>(count_cores(core_set()), core_quota())));
}

}  // namespace atl::host
