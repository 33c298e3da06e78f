#pragma once

#include <chrono>
#include <string>

#include "trainer/comm/comm.h"

// What the waits of all kinds of groups have in common.
namespace atl::comm {

// Between two looks at a device: often enough for a step, and the core is free for others.
inline constexpr std::chrono::microseconds kDeviceInterval(50);

// "rank 3 has waited 602 s for the gradients of layers.17 (reduce-scatter)"
std::string wait_text(int rank, double waited_s, const Awaited& awaited);

// The end of a message of a wait that was too long.
inline constexpr const char* kLimitText = ". More than --collective-timeout ends the run";

}  // namespace atl::comm
