#pragma once

#include <cstdint>
#include <thread>

#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// A thread that forgets old history (prune_history) at the start and each hour.
class HistoryPruner {
  public:
    HistoryPruner(pg::Pool& pool, std::int64_t keep_days, metrics::Registry& metrics);

  private:
    void run(const std::stop_token& stop);

    pg::Pool& pool_;
    const std::int64_t keep_days_;
    metrics::Registry& metrics_;
    std::jthread thread_;
};

}  // namespace atl::dispatch
