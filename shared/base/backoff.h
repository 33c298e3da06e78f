#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>

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

}  // namespace atl
