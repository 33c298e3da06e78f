#include "shared/http/server/thread_pool.h"

#include <utility>

namespace atl::http {

ThreadPool::ThreadPool(int thread_count, std::size_t queue_max) : queue_max_(queue_max) {
    for (int i = 0; i < thread_count; ++i) threads_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
    stop();
}

bool ThreadPool::submit(std::function<void()> task) {
    {
        const std::lock_guard lock(mutex_);
        if (stopped_ || queue_.size() >= queue_max_) return false;
        queue_.push_back(std::move(task));
    }
    wake_.notify_one();
    return true;
}

void ThreadPool::stop() {
    std::deque<std::function<void()>> dropped;
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        dropped.swap(queue_);  // destroyed without the lock: a task's captures may do anything
    }
    wake_.notify_all();
    threads_.clear();
}

void ThreadPool::work() {
    for (;;) {
        std::function<void()> task;
        {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
            if (stopped_) return;
            task = std::move(queue_.front());
            queue_.pop_front();
        }
        task();
    }
}

}  // namespace atl::http
