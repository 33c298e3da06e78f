#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/dispatch/domain/task.h"
#include "services/dispatch/sites/site.h"
#include "services/dispatch/work/answer_cache.h"
#include "services/dispatch/work/facility_connections.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// What attempts are doing at their sites, asked of all attempts of a facility at once and kept for each of them.
// Thread-safe. Holds on to what it is given.
class AttemptWatch {
  public:
    AttemptWatch(pg::Pool& pool, FacilityConnections& connections) : pool_(pool), connections_(connections) {}

    // What is found in the directory of the task's attempt. One script looks at as many of the facility's attempts as
    // it may, and asks the batch system about them when that is due; a batch system that gave no answer is asked alone
    // until it gives one, so that looks need not wait for it.
    Result<AnswerCache<Look>::Found> look(const Task& task, Site& site, std::int64_t now_ms);
    // The batch system's answer to a question that was asked after that time. Cause::kBatchSystem: there is none.
    Result<AnswerCache<BatchAnswer>::Found> ask_queue(const Task& task, Site& site, std::int64_t after_ms,
                                                      std::int64_t now_ms);

  private:
    bool asks_queue_with_looks(const Task& task, const Site& site, std::int64_t now_ms);
    Result<std::vector<Look>> look_and_ask(const std::vector<Task>& tasks, Site& site, std::int64_t now_ms);
    void note_queue(const std::string& facility, const Result<std::vector<BatchAnswer>>& answers, std::int64_t now_ms);
    // The tasks whose attempts a site's batch system may know, this one first, then those that were not looked at for
    // longest.
    Result<std::vector<Task>> tasks_beside(const Task& task) const;

    pg::Pool& pool_;
    FacilityConnections& connections_;
    AnswerCache<Look> looks_;
    AnswerCache<BatchAnswer> answers_;
};

}  // namespace atl::dispatch
