#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace atl::kernels::cpu {

// Persistent workers that take tiles of a loop one by one, so that a busy core only takes fewer of them. The caller
// works too, and waits only for workers that have begun a tile: one that the system does not run delays nobody. With
// one thread everything runs inline. One loop at a time, from one thread.
class ThreadPool {
  public:
    explicit ThreadPool(int threads);  // throws std::system_error when the system has no thread left
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls body(index, thread) for every index in [0, count), thread in [0, threads()); returns when all are done.
    // What an index computes must not depend on the thread that runs it.
    template <class Body>
    void parallel_for(std::int64_t count, Body&& body) {
        if (count <= 1 || workers_.empty()) {
            for (std::int64_t index = 0; index < count; ++index) body(index, 0);
            return;
        }
        using Plain = std::remove_reference_t<Body>;
        run({[](void* self, std::int64_t index, int thread) { (*static_cast<Plain*>(self))(index, thread); },
             std::addressof(body), count});
    }

  private:
    struct Loop {
        void (*call)(void* body, std::int64_t index, int thread) = nullptr;
        void* body = nullptr;
        std::int64_t count = 0;
    };

    void run(const Loop& loop);
    void stop();
    void work(int thread);
    void take_tiles(int thread);

    Loop loop_;
    std::atomic<std::int64_t> next_{0};
    std::atomic<bool> open_{false};  // loop_ may be read by a worker that counts itself in inside_ first
    std::atomic<int> inside_{0};     // workers that look at the current loop
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<std::uint64_t> generation_{0};  // counts loops; written under the mutex
    std::atomic<bool> stopping_{false};
    std::vector<std::jthread> workers_;
};

}  // namespace atl::kernels::cpu
