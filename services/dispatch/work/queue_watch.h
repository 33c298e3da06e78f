#pragma once

#include <chrono>
#include <thread>
#include <vector>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/settings.h"
#include "services/dispatch/work/facility_connections.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// Threads that ask the batch system of each facility with unfinished tasks, one short question a facility, whether it
// answers at all. What runs for long is asked about seldom; that nobody answers is to be known within half a minute,
// and so is that somebody answers again. Several processes share the questions.
class QueueWatch {
  public:
    // `interval`: between two questions to one facility.
    QueueWatch(pg::Pool& pool, FacilityConnections& connections, std::int64_t threads,
               std::chrono::milliseconds interval = kBatchPing);

  private:
    Result<bool> ask_one();  // false: nobody is to be asked now
    Status record(const QueueToAsk& asked, const Status& answered);

    pg::Pool& pool_;
    FacilityConnections& connections_;
    const std::chrono::milliseconds interval_;
    std::vector<std::jthread> threads_;  // last: stopped first
};

}  // namespace atl::dispatch
