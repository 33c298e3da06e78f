#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

namespace atl::http {

// Gives memory that was freed back to the system, some moments after large bodies were worked on and within seconds of
// other work that took much: the C library keeps what was many small pieces, as parsed JSON is. Thread-safe.
class MemoryReturn {
  public:
    MemoryReturn();
    // A request with a body of so many bytes has ended.
    void count(std::size_t body_bytes);

  private:
    void run(const std::stop_token& stop);

    std::mutex mutex_;
    std::condition_variable_any noted_;
    bool is_due_ = false;
    std::int64_t kept_bytes_ = 0;  // by the process, when memory was last given back
    std::jthread thread_;          // the last: it uses the others
};

}  // namespace atl::http
