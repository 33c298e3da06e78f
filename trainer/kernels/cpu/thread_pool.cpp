#include "trainer/kernels/cpu/thread_pool.h"

#include "shared/base/check.h"

namespace atl::kernels::cpu {
namespace {

// Loops follow each other within microseconds, so a worker looks this often before it sleeps.
constexpr int kSpins = 4000;

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
    check(threads >= 1, "a thread pool has at least one thread");
    try {
        for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
    } catch (...) {
        stop();  // those that there are, which are waited for before the exception goes on
        throw;
    }
}

ThreadPool::~ThreadPool() {
    stop();
}

void ThreadPool::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
}

void ThreadPool::run(const Loop& loop) {
    loop_ = loop;
    next_.store(0, std::memory_order_relaxed);
    {
        const std::lock_guard lock(mutex_);
        open_.store(true);
        generation_.fetch_add(1);
    }
    wake_.notify_all();
    take_tiles(0);
    // A worker enters inside_ before it looks at open_, so after this either it is waited for or it stays out.
    open_.store(false);
    for (int spin = 0; inside_.load() != 0; ++spin) {
        if (spin < kSpins) {
            pause_briefly();
        } else {
            std::this_thread::yield();
        }
    }
}

void ThreadPool::work(int thread) {
    for (std::uint64_t seen = 0;;) {
        for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin)
            pause_briefly();
        {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [&] { return stopping_ || generation_.load() != seen; });
            if (stopping_) return;
            seen = generation_.load();
        }
        inside_.fetch_add(1);
        if (open_.load()) take_tiles(thread);
        inside_.fetch_sub(1);
    }
}

void ThreadPool::take_tiles(int thread) {
    const Loop loop = loop_;
    for (std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed); index < loop.count;
         index = next_.fetch_add(1, std::memory_order_relaxed)) {
        loop.call(loop.body, index, thread);
    }
}

}  // namespace atl::kernels::cpu
