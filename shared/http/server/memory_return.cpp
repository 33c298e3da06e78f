#include "shared/http/server/memory_return.h"

#include <malloc.h>

#include <chrono>

namespace atl::http {
namespace {

constexpr std::size_t kLargeBodyBytes = 128U << 10;
// What the last request held is free by then, and many requests are one call.
constexpr std::chrono::milliseconds kPause{200};

}  // namespace

MemoryReturn::MemoryReturn() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

void MemoryReturn::count(std::size_t body_bytes) {
    if (body_bytes < kLargeBodyBytes) return;
    {
        const std::lock_guard lock(mutex_);
        is_due_ = true;
    }
    noted_.notify_one();
}

void MemoryReturn::run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (noted_.wait(lock, stop, [this] { return is_due_; })) {
        noted_.wait_for(lock, stop, kPause, [] { return false; });
        is_due_ = false;
        lock.unlock();
        ::malloc_trim(0);
        lock.lock();
    }
}

}  // namespace atl::http
