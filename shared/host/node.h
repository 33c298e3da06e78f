#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace atl::host {

// Bytes that a line such as "VmHWM:   1234 kB" of /proc/self/status or /proc/meminfo says; 0 if it isn't there.
std::int64_t kilobyte_field(std::string_view text, std::string_view name);

// This process's resident memory, by /proc/self/status: now, and at its peak.
std::int64_t resident_bytes();
std::int64_t resident_peak_bytes();

// Memory that this process and the others beside it may still take: what the kernel calls available, or what the
// limits of the control groups leave (shared/host/control_group.h), whichever is less.
std::int64_t available_bytes();

std::string cpu_model();

}  // namespace atl::host
