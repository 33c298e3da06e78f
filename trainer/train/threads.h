#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trainer/comm/comm.h"

// How many threads a rank computes with. A launcher may bind each rank to cores of its own, or all to the same.
namespace atl::train {

// Of a rank whose machine has ranks with these host::core_set()s and a quota of that many cores for all of them: a core
// that several ranks may run on is shared equally, and each rank gets what its cores come to, rounded down, at least 1.
// So there are never more threads than cores, unless there are more ranks.
int thread_share(std::span<const std::string> sets, std::size_t rank, double quota);

// What to tell when a launcher that may run on `launcher` bound its ranks so tightly that `threads` (0: as many as
// there are cores) do not get cores that lie idle; else empty. Two processors may be one core.
std::string idle_cores_warning(std::span<const std::string> sets, const std::string& launcher, int threads);

// What to tell when a rank that may use so many cores was given more threads; else empty.
std::string busy_cores_warning(int threads, int cores);

// kInvalidArgument: `threads` of each of these ranks are so many for a quota of that many cores that the machine would
// do little but switch between them; somebody else's work would stand still with it.
Status check_thread_count(std::span<const std::string> sets, int threads, double quota);

// `threads`, or when it is 0 thread_share(); errors as check_thread_count(). Rank 0 gives the warnings for its own
// machine, the one of idle cores when a launcher started it: cores that a process alone was kept from were meant. Every
// rank takes part.
Result<int> choose_threads(int threads, comm::Comm& comm);

}  // namespace atl::train
