#pragma once

#include <chrono>
#include <mutex>
#include <thread>

#include "shared/pg/pg.h"
#include "shared/service/service.h"

namespace atl::service {

// Whether a service can do its work, which a thread of its own finds out each second: whoever asks waits for nothing
// and costs nothing. Thread-safe.
class Readiness {
  public:
    Readiness(pg::Pool& pool, Running& running, metrics::Registry& metrics);

    // Why it is not ready; so it is, too, while nothing has been found out for a while.
    Status get() const;

  private:
    void run(const std::stop_token& stop);
    Status look();

    pg::Pool& pool_;
    Running& running_;
    prometheus::Gauge& postgres_;
    prometheus::Gauge& kafka_;
    mutable std::mutex mutex_;
    Status status_;
    std::chrono::steady_clock::time_point found_out_;
    std::jthread thread_;
};

}  // namespace atl::service
