#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace atl::events {

// Waits longer after each failure in a row, and ends the wait at once when asked to stop.
class Backoff {
  public:
    void wait(const std::stop_token& stop) {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any().wait_for(lock, stop, next_, [] { return false; });
        next_ = std::min(next_ * 2, kMax);
    }
    void reset() { next_ = kMin; }

  private:
    static constexpr std::chrono::milliseconds kMin{50};
    static constexpr std::chrono::milliseconds kMax{5000};
    std::chrono::milliseconds next_ = kMin;
};

}  // namespace atl::events
