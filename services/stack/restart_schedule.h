#pragma once

#include <chrono>
#include <cstdint>

#include "shared/base/backoff.h"

// When the supervisor starts again what has ended. Internal to this module.
namespace atl::stack {

constexpr std::chrono::milliseconds kLookInterval{500};   // between two looks at the components
constexpr std::chrono::milliseconds kLeftoversMax{2000};  // for what a dead component has left to end
constexpr std::chrono::minutes kStableAfter{1};           // what ran for so long has not ended quickly
constexpr std::chrono::milliseconds kRestartPause{1000};  // after a second quick end, then doubled
constexpr std::chrono::milliseconds kRestartPauseMax{60'000};

// How long a component whose end was seen stays down. quick_ends: how often in a row it has ended within kStableAfter
// of its start. The first of these is not waited for.
inline std::chrono::milliseconds restart_pause(std::int64_t quick_ends) {
    return quick_ends <= 1 ? std::chrono::milliseconds(0)
                           : backoff_delay(quick_ends - 1, kRestartPause, kRestartPauseMax);
}

// From a component's end to its next start, at most, where the supervisor itself is not held up. A pause ends at a
// look.
inline std::chrono::milliseconds restarted_within(std::int64_t quick_ends) {
    return kLookInterval + restart_pause(quick_ends) + kLookInterval + kLeftoversMax;
}

}  // namespace atl::stack
