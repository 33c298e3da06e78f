#pragma once

#include <thread>

#include "services/dispatch/db/history.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// A thread that forgets old history (prune_history) at the start and each hour.
class HistoryPruner {
  public:
    HistoryPruner(pg::Pool& pool, Keep keep, metrics::Registry& metrics);

  private:
    void run(const std::stop_token& stop);

    pg::Pool& pool_;
    const Keep keep_;
    metrics::Registry& metrics_;
    std::jthread thread_;
};

}  // namespace atl::dispatch
