#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace atl::host {

// Bytes that the memory limits of a process' control groups leave: the least of limit − (use − page cache) over its own
// group and every one above it, for batch systems and containers set the limit on any of them. Page cache doesn't
// count, as in the kernel's MemAvailable: it makes room. The largest number when there is no limit.
//
// `root` is where the hierarchies are mounted, /sys/fs/cgroup, and `groups` the text of /proc/self/cgroup. Reads
// version 2 (memory.max) and the memory controller of version 1 (memory.limit_in_bytes). A group whose files are not
// there has no limit: in a container the root itself is the container's group, and paths from outside of it lead
// nowhere.
std::int64_t control_group_room(const std::filesystem::path& root, std::string_view groups);

// How many cores' time the CPU quotas of the same groups leave, by quota ÷ period: the least of them, infinity when
// there is none. Reads cpu.max of version 2 and cpu.cfs_quota_us of version 1.
double control_group_cores(const std::filesystem::path& root, std::string_view groups);

}  // namespace atl::host
