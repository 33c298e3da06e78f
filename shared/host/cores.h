#pragma once

#include <sys/types.h>

#include <string>

namespace atl::host {

// The processors that a process (0: the calling thread) may run on: a '1' at the number of each, a '0' at the others.
// Empty when the system does not say.
std::string core_set(pid_t process = 0);

// How many of them there are.
int count_cores(const std::string& set);

// How many cores' time the quotas of this process' control groups leave; infinity: no quota.
double core_quota();

// Cores that this process may use: of its set, and no more than its quota allows, at least 1.
int usable_cores();

}  // namespace atl::host
