#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace atl::http {

// A fixed number of threads and a bounded queue. Tasks must not throw.
class ThreadPool {
  public:
    ThreadPool(int thread_count, std::size_t queue_max);
    ~ThreadPool();  // as stop()

    // False when the queue is full or the pool stopped; the task then never runs.
    bool submit(std::function<void()> task);
    // Finishes the tasks that run, drops those that wait.
    void stop();

  private:
    void work();

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> queue_;
    std::size_t queue_max_;
    bool stopped_ = false;
    std::vector<std::jthread> threads_;
};

}  // namespace atl::http
