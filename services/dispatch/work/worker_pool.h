#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "services/dispatch/db/events.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/settings.h"
#include "services/dispatch/work/attempt_runner.h"
#include "services/dispatch/work/federation_metrics.h"
#include "services/dispatch/work/steps_in_hand.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/lease_workers.h"

namespace atl::dispatch {

// Seams for tests that play a crash, and for sites that are played.
struct WorkerSeams {
    // True: this worker forgets the step that it has just done, as if the process had been killed before writing it.
    std::function<bool(const Task&)> lose_result = {};
    SiteFactory make_site = {};
};

// Threads that lease due tasks, do one step each and write its outcome under the lease's fence; one more keeps the
// leases, watches deadlines and counts. There are more threads than `workers`, for steps that are slow. Any number of
// processes may run such a pool on one database.
class WorkerPool {
  public:
    // `conninfo`: of the pool's database; `instance`: service::instance_name(), who holds the leases.
    WorkerPool(pg::Pool& pool, const std::string& conninfo, const Settings& settings, std::string instance,
               const Topics& topics, FacilityConnections& connections, AttemptRunner& runner,
               metrics::Registry& metrics, WorkerSeams seams = {});
    ~WorkerPool();  // ends the steps in hand; whoever comes next repeats them

  private:
    pg::LeaseWorkers::Options options(const std::string& conninfo);
    Result<bool> work_once(pg::HeldLeases& held);  // false: nothing was due
    // What a step has heard of the site: nothing, as it was not asked, an answer, or that nothing can be done there.
    enum class Heard { kNotAsked, kAnswer, kSilence };
    // Does the task's next step; what is thrown on the way fails the attempt.
    TaskChange step(const LeasedTask& leased, Heard& heard);
    TaskChange do_step(const LeasedTask& leased, Heard& heard);
    // Gives up the attempt in hand, whose step cannot be done or kept, and ends what it has running.
    TaskChange fail(const LeasedTask& leased, const std::string& why);
    void end_at_site(const Task& task, Site& site);
    void stop_staging(const Task& task, Site& site);
    void read_logs(const Task& before, TaskChange& change, Site& site);
    Status record_facility(pg::Connection& connection, const LeasedTask& leased, const TaskChange& change, Heard heard);
    // Whether the facility answered; and what the step gave, under the fence. An outcome that the database cannot hold
    // becomes the attempt's failure.
    Status write(const LeasedTask& leased, TaskChange& change, Heard heard);
    Status save(const LeasedTask& leased, const TaskChange& change, Heard heard);
    Status close_late_rounds();
    Status count();

    pg::Pool& pool_;
    const Settings& settings_;
    const pg::LeaseTerms terms_;
    const Topics& topics_;
    FacilityConnections& connections_;
    AttemptRunner& runner_;
    metrics::Registry& metrics_;
    WorkerSeams seams_;
    StepsInHand steps_;
    EndCounter end_counter_;                              // the duties' thread's
    std::chrono::steady_clock::time_point counted_ = {};  // the duties' thread's
    pg::LeaseWorkers workers_;                            // last: it works with the others
};

}  // namespace atl::dispatch
