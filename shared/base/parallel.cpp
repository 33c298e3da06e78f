#include "shared/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "shared/base/contained.h"

namespace atl {

Status for_each_parallel(std::size_t count, int threads, const std::function<Status(std::size_t, int)>& work) {
    std::atomic<std::size_t> next = 0;
    std::atomic<bool> failed = false;
    std::mutex mutex;
    std::optional<Error> error;
    const auto loop = [&](int thread) {
        for (std::size_t i = next++; i < count && !failed; i = next++) {
            const Status status = contained([&] { return work(i, thread); });
            if (status.ok()) continue;
            failed = true;
            const std::lock_guard lock(mutex);
            if (!error) error = status.error();
        }
    };
    {
        std::vector<std::jthread> others;
        const int useful =
            static_cast<int>(std::min<std::size_t>(count, static_cast<std::size_t>(std::max(threads, 1))));
        for (int thread = 1; thread < useful; ++thread) others.emplace_back(loop, thread);
        loop(0);
    }
    if (error) return *error;
    return {};
}

}  // namespace atl
