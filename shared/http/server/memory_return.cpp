#include "shared/http/server/memory_return.h"

#include <malloc.h>

#include <chrono>

#include "shared/host/node.h"

namespace atl::http {
namespace {

constexpr std::size_t kLargeBodyBytes = 128U << 10;
// What the last request held is free by then, and many requests are one call.
constexpr std::chrono::milliseconds kPause{200};
// What grew without a large body is looked for so often, and counts from so many bytes on.
constexpr std::chrono::seconds kLook{10};
constexpr std::int64_t kGrownBytes = 64 << 20;

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
    while (!stop.stop_requested()) {
        const bool is_told = noted_.wait_for(lock, stop, kLook, [this] { return is_due_; });
        if (is_told) noted_.wait_for(lock, stop, kPause, [] { return false; });
        if (!is_told && host::resident_bytes() < kept_bytes_ + kGrownBytes) continue;
        is_due_ = false;
        lock.unlock();
        ::malloc_trim(0);
        const std::int64_t kept = host::resident_bytes();
        lock.lock();
        kept_bytes_ = kept;
    }
}

}  // namespace atl::http
