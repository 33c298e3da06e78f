#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/domain/check_job.h"
#include "services/dispatch/domain/task_machine.h"
#include "services/dispatch/domain/update_check.h"
#include "services/dispatch/settings.h"
#include "services/dispatch/sites/site.h"
#include "services/dispatch/sites/stream_turns.h"
#include "services/dispatch/sites/transport/transport.h"
#include "services/dispatch/work/answer_cache.h"
#include "services/dispatch/work/silent_queues.h"
#include "shared/auth/auth.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// Makes a facility's site.
using SiteFactory = std::function<std::unique_ptr<Site>(const Facility&)>;

// Does single steps of tasks at their facilities. Every step can be repeated: what it leaves behind is found again.
// Thread-safe. Holds on to what it is given.
class AttemptRunner {
  public:
    // Without a factory sites are what their transports lead to.
    AttemptRunner(const Settings& settings, const Catalog& catalog, auth::Issuer issuer, pg::Pool& pool,
                  SiteFactory make_site = {});

    // Ends the scripts that run, for good: their outcome is Unreachable.
    void stop() { stop_.request_stop(); }
    bool is_stopped() const { return stop_.stop_requested(); }

    // The facility with its transport, which is kept between calls.
    std::unique_ptr<Site> site(const Facility& facility);
    // The same for one step, whose scripts share their time.
    std::unique_ptr<Site> site_for_step(const Facility& facility);
    // What a run there needs, tried: tools, directories, programs, the way from there to the store.
    SiteCheck check_facility(const Facility& facility, std::int64_t now_ms);
    // A part of the image of its record on its way there; nothing: the image is in its place.
    Result<std::optional<Moving>> put_image(const Facility& facility, const ImagePart& part) {
        return site(facility)->put_image(part);
    }
    // A short job that says what its ranks find. Submitted once; asked for until it has ended; then dropped, with its
    // directory, wherever it stands.
    Result<std::string> submit_check(const Facility& facility, const CheckJob& job);
    Result<CheckJobSeen> look_at_check(const Facility& facility, const CheckJob& job);
    Status drop_check(const Facility& facility, const CheckJob& job);
    // What the facility's host shows now. kConflict: it is this machine.
    Result<std::string> show_host_key(const Facility& facility) const;
    // The command that logs in there on this machine, asking whoever runs it. kConflict: there is nothing to log in to.
    Result<std::vector<std::string>> login_command(const Facility& facility) const;
    // Ends the connection, which is made anew by whoever needs it.
    void disconnect(const std::string& facility);

    const PollPolicy& poll_policy(const Facility& facility) const;

    // The batch script of the task's attempt; nothing is asked of the site.
    Result<std::string> script(const Task& task, const Facility& facility);

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
    Result<Outcome> stage(const Task& task, Site& site);
    Result<bool> is_job_paused(const Task& task) const;
    Result<bool> was_submitted_before(const Task& task, Site& site);
    Result<Outcome> submit(const Task& task, Site& site);
    Result<Outcome> observe(const Task& task, Site& site, std::int64_t now_ms);
    static std::string read_batch_log(const Task& task, Site& site);
    void plan_continuation(const Task& task, Site& site, std::int64_t now_ms, Observed& observed);
    Result<std::string> submit_continuation(const Task& task, Site& site);
    std::vector<AttemptLogs> logs_to_read(const Task& task, const Facility& facility) const;
    Status end_batch_jobs(const Task& task, Site& site);
    Result<AnswerCache<Look>::Found> look(const Task& task, Site& site, std::int64_t now_ms);
    bool asks_queue_with_looks(const Task& task, const Site& site, std::int64_t now_ms);
    Result<std::vector<Look>> look_and_ask(const std::vector<Task>& tasks, Site& site, std::int64_t now_ms);
    void note_queue(const std::string& facility, const Result<std::vector<BatchAnswer>>& answers, std::int64_t now_ms);
    // An answer to a question that was asked after that time. Cause::kBatchSystem: there is none.
    Result<AnswerCache<BatchAnswer>::Found> queue_status(const Task& task, Site& site, std::int64_t after_ms,
                                                         std::int64_t now_ms);
    // The tasks whose attempts a site's batch system may know, this one first, then those that were not looked at for
    // longest.
    Result<std::vector<Task>> tasks_beside(const Task& task) const;
    Result<Outcome> collect(const Task& task, Site& site);
    Result<Outcome> push_update(const Task& task, const TrainParams& train, Site& site);
    Result<Outcome> clean(const Task& task, Site& site);
    // For the site's transfers: reads the versions that the task needs and, where it trains, writes its update.
    Result<std::string> issue_token(const Task& task) const;

    const Settings& settings_;
    const Catalog& catalog_;
    auth::Issuer issuer_;
    pg::Pool& pool_;
    std::shared_ptr<Transport> transport(const Facility& facility);
    std::unique_ptr<Site> site_through(const Facility& facility, std::shared_ptr<Transport> transport);

    const SiteFactory make_site_;
    StreamTurns stream_turns_;
    AnswerCache<Look> looks_;
    AnswerCache<BatchAnswer> queue_status_;
    std::stop_source stop_;
    std::mutex mutex_;
    struct Connection {
        TransportSpec spec;
        std::shared_ptr<Transport> transport;
    };
    std::map<std::string, Connection> connections_;  // by facility
    SilentQueues silent_queues_;
};

}  // namespace atl::dispatch
