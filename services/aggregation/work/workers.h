#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "services/aggregation/settings.h"
#include "services/aggregation/work/worker.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::aggregation {

// The threads that do the work of this process, and one that wakes them when there is some and keeps their leases.
// Any number of processes may run on one database. The destructor lets each thread finish the part in hand.
class Workers {
  public:
    // `instance`: service::instance_of(); what an earlier process of it held is free at once.
    Workers(pg::Pool& pool, std::string conninfo, const Settings& settings, metrics::Registry& metrics,
            const std::string& instance);
    ~Workers();

  private:
    void wake_and_renew(const std::stop_token& stop);
    Status listen_once(const std::stop_token& stop);
    void work(const std::stop_token& stop);

    pg::Pool& pool_;
    const std::string conninfo_;
    const Settings settings_;
    LeaseHolder held_;
    metrics::Registry& metrics_;
    std::mutex mutex_;
    std::condition_variable_any woken_;
    std::int64_t wake_count_ = 0;
    std::jthread renewer_;
    std::vector<std::jthread> threads_;  // last: stopped first, while leases are still renewed
};

}  // namespace atl::aggregation
