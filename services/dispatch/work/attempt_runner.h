#pragma once

#include <string>
#include <vector>

#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/domain/task_machine.h"
#include "services/dispatch/domain/update_check.h"
#include "services/dispatch/settings.h"
#include "services/dispatch/sites/site.h"
#include "services/dispatch/work/attempt_watch.h"
#include "services/dispatch/work/facility_connections.h"
#include "shared/auth/auth.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// Does single steps of tasks at their facilities. Every step can be repeated: what it leaves behind is found again.
// Thread-safe. Holds on to what it is given.
class AttemptRunner {
  public:
    AttemptRunner(const Settings& settings, const Catalog& catalog, auth::Issuer issuer, pg::Pool& pool,
                  FacilityConnections& connections);

    // The step that the task's attempt stands at.
    Outcome run(const Task& task, Site& site, std::int64_t now_ms);
    // What the attempt, if it has ended, wrote at its site, as far as its facility gives it; and what earlier ones
    // there wrote that could not be read then. What cannot be read now may be asked for again, a few times.
    std::vector<AttemptLogs> read_logs(const Task& task, Site& site);
    // Ends the attempt's batch job, its continuation before that, and what it moves.
    Outcome cancel(const Task& task, Site& site);
    // Cancelled: the next attempt's batch job is gone from the queue, and none of that name ever trains.
    Outcome withdraw_continuation(const Task& task, Site& site);
    // Ends what an attempt that stages is bringing, if the site can be asked.
    Status stop_staging(const Task& task, Site& site);

  private:
    // An error becomes an outcome in run().
    Result<Outcome> run_step(const Task& task, Site& site, std::int64_t now_ms);
    Status require_versions(const Task& task) const;  // kInvalidArgument: the store has one no more
    Result<Outcome> stage(const Task& task, Site& site);
    Result<bool> is_job_paused(const Task& task) const;
    Result<bool> was_submitted_before(const Task& task, Site& site);
    static Result<BatchJob> describe_due_job(const Task& task, const Site& site);
    Result<Outcome> submit(const Task& task, Site& site);
    Result<Outcome> observe(const Task& task, Site& site, std::int64_t now_ms);
    static Status read_failure(const Task& task, Site& site, Observed& observed);
    static void read_batch_log(const Task& task, Site& site, Observed& observed);
    static std::string why_no_step(const Task& task, Site& site);
    void plan_continuation(const Task& task, Site& site, std::int64_t now_ms, Observed& observed);
    Result<std::string> submit_continuation(const Task& task, Site& site);
    std::vector<AttemptLogs> logs_to_read(const Task& task, const Facility& facility) const;
    Status end_batch_jobs(const Task& task, Site& site);
    Result<Outcome> collect(const Task& task, Site& site);
    Result<Outcome> push_update(const Task& task, const TrainParams& train, Site& site);
    Result<Outcome> clean(const Task& task, Site& site);
    // For the site's transfers: reads the versions that the task needs and, where it trains, writes its update.
    Result<std::string> issue_token(const Task& task) const;

    const Settings& settings_;
    const Catalog& catalog_;
    auth::Issuer issuer_;
    pg::Pool& pool_;
    FacilityConnections& connections_;
    AttemptWatch watch_;
};

}  // namespace atl::dispatch
