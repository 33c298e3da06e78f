#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>

#include "shared/base/contained.h"

namespace atl {

// How long to wait after that many failures in a row: `first` after one, then doubled each time, at most `max`.
inline std::chrono::milliseconds backoff_delay(std::int64_t failures, std::chrono::milliseconds first,
                                               std::chrono::milliseconds max) {
    return std::min(first * (std::int64_t{1} << std::clamp<std::int64_t>(failures - 1, 0, 20)), max);
}

// False if asked to stop before.
inline bool wait_unless_stopped(const std::stop_token& stop, std::chrono::milliseconds time) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait_for(lock, stop, time, [] { return false; });
    return !stop.stop_requested();
}

// Calls `step` until asked to stop. After an error, which what it throws is too, it tells `on_error` and waits, longer
// after each in a row.
inline void repeat_until_stopped(const std::stop_token& stop, std::chrono::milliseconds first,
                                 std::chrono::milliseconds max, const std::function<Status()>& step,
                                 const std::function<void(const Error&)>& on_error) {
    for (std::int64_t failures = 0; !stop.stop_requested();) {
        const Status status = contained(step);
        failures = status.ok() ? 0 : failures + 1;
        if (status.ok()) continue;
        on_error(status.error());
        wait_unless_stopped(stop, backoff_delay(failures, first, max));
    }
}

}  // namespace atl
