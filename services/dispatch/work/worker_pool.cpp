#include "services/dispatch/work/worker_pool.h"

#include <algorithm>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/jobs.h"
#include "services/dispatch/domain/continuation.h"
#include "services/dispatch/metrics.h"
#include "shared/base/backoff.h"
#include "shared/base/contained.h"
#include "shared/base/id.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kIdleMax{500};
constexpr std::int64_t kSlowPerWorker = 4;  // so many slow steps for each worker
constexpr int kSaveTries = 5;
constexpr milliseconds kSaveWait{200};
constexpr milliseconds kSaveWaitMax{1600};
constexpr std::size_t kGivenUpBytesMax = 500;
constexpr std::chrono::seconds kCountInterval{5};

const char* name_of_step(const Task& task) {
    if (task.cancel_requested) return "cancelling";
    return task.state == TaskState::kPending || !task.attempt ? "beginning" : to_string(task.attempt->step);
}

bool has_live_attempt(const Task& task) {
    return task.attempt && task.state == TaskState::kRunning;
}

void log_change(const TaskChange& change) {
    if (!change.is_news) return;
    const Task& task = change.task;
    if (task.state == TaskState::kFailed) spdlog::warn("task {}: {}", task.id, task.error);
    spdlog::info("task {} ({} at {}, round {}): {}, {}", task.id, to_string(task.kind()), task.facility, task.round,
                 to_string(task.state), task.attempt ? to_string(task.attempt->step) : "no attempt");
}

// One that succeeded has moved its data away and cleaned up itself.
Task cleaning_after(const Task& preparation) {
    Task task = cleaning_task(preparation.facility);
    task.id = new_id();
    task.preparation = preparation.preparation;
    return task;
}

}  // namespace

WorkerPool::WorkerPool(pg::Pool& pool, const std::string& conninfo, const Settings& settings, std::string instance,
                       const Topics& topics, FacilityConnections& connections, AttemptRunner& runner,
                       metrics::Registry& metrics, WorkerSeams seams)
    : pool_(pool),
      settings_(settings),
      terms_{std::chrono::seconds(settings.lease_s), std::move(instance)},
      topics_(topics),
      connections_(connections),
      runner_(runner),
      metrics_(metrics),
      seams_(std::move(seams)),
      steps_(settings.workers, (kSlowPerWorker - 1) * settings.workers),
      workers_(pool, options(conninfo)) {
    metrics_.gauge(kMetrics["atoll_workers"]).Set(static_cast<double>(settings.workers));
    metrics_.counter(kMetrics["atoll_leases_lost_total"]);
}

WorkerPool::~WorkerPool() {
    connections_.stop();
}

pg::LeaseWorkers::Options WorkerPool::options(const std::string& conninfo) {
    return {.name = "dispatch workers",
            .threads = (kSlowPerWorker + 1) * settings_.workers,
            .terms = terms_,
            .tables = {&task_leases()},
            .make_work = [this](pg::HeldLeases& held) { return [this, &held] { return work_once(held); }; },
            .idle_wait = [this]() -> Result<milliseconds> {
                ATOLL_TRY(auto connection, pool_.acquire());
                return time_to_next_task(*connection, kIdleMax);
            },
            .duties = {[this] { return close_late_rounds(); }, [this] { return count(); }},
            .channel = kTaskChannel,
            .conninfo = conninfo};
}

Result<bool> WorkerPool::work_once(pg::HeldLeases& held) {
    const auto now = StepsInHand::Clock::now();
    std::int64_t next_in_ms = 0;
    {
        const auto place = steps_.take(now);
        if (place == nullptr) return false;
        std::optional<LeasedTask> leased;
        {
            ATOLL_TRY(auto connection, pool_.acquire());
            ATOLL_TRY(leased, lease_task(*connection, terms_,
                                         {settings_.facility_steps_max, steps_.slow_facilities(now),
                                          steps_.has_room_for_silent(now)}));
        }
        if (!leased) return false;
        place->is_for(leased->task.facility, leased->is_silent);
        const pg::HeldLeases::Hold holding(held, leased->lease);
        Heard heard = Heard::kNotAsked;
        TaskChange change = step(*leased, heard);
        ATOLL_RETURN_IF_ERROR(write(*leased, change, heard));
        next_in_ms = change.next_in_ms;
    }
    if (next_in_ms == 0) workers_.wake();
    return true;
}

// What the step has found out of the facility itself.
Status WorkerPool::record_facility(pg::Connection& connection, const LeasedTask& leased, const TaskChange& change,
                                   Heard heard) {
    const std::string& name = leased.facility.name;
    if (heard != Heard::kNotAsked) {
        const PollPolicy& poll_policy = connections_.poll_policy(leased.facility);
        const bool is_silent = heard == Heard::kSilence && change.task.attempt->waiting;
        const std::string reason = is_silent ? change.task.attempt->waiting->reason : "";
        const bool is_timed = change.retry_ms > 0;
        ATOLL_RETURN_IF_ERROR(record_answer(connection, name, reason, is_timed ? change.retry_ms : poll_policy.retry_ms,
                                            is_timed ? change.retry_ms : poll_policy.retry_ms_max));
    }
    if (change.batch_silence && !change.batch_silence->empty())
        ATOLL_RETURN_IF_ERROR(record_batch_silence(connection, name, *change.batch_silence));
    else if (change.batch_silence && leased.is_batch_system_silent)
        ATOLL_RETURN_IF_ERROR(record_batch_answer(connection, name, change.task.attempt->batch_asked_ms));
    if (change.has_staged && !leased.facility.has_work_dir) ATOLL_RETURN_IF_ERROR(record_work_dir(connection, name));
    return {};
}

Status WorkerPool::write(const LeasedTask& leased, TaskChange& change, Heard heard) {
    if (seams_.lose_result && seams_.lose_result(leased.task)) return {};
    {
        ATOLL_TRY(auto connection, pool_.acquire());
        // We ended the step ourselves: that says nothing of the facility, and the next process may go on at once.
        if (heard == Heard::kSilence && connections_.is_stopped())
            return pg::give_lease_back(*connection, leased.lease);
        // What a worker heard that was late is old: another has asked since, and recorded the answer.
        ATOLL_TRY(const bool is_current, pg::holds_lease(*connection, leased.lease));
        if (!is_current) {
            spdlog::warn("task {}: another worker has taken over; discarding this result", leased.task.id);
            metrics_.counter(kMetrics["atoll_leases_lost_total"]).Increment();
            return {};
        }
        ATOLL_RETURN_IF_ERROR(record_facility(*connection, leased, change, heard));
    }
    Status saved = save(leased, change, heard);
    // A text or a number that the database cannot hold, or an event that is too large: so it would be each time.
    if (!saved.ok() &&
        (saved.error().code == ErrorCode::kInvalidArgument || saved.error().code == ErrorCode::kTooLarge)) {
        change = fail(leased, "what the site says cannot be kept: " + describe(saved.error()));
        saved = save(leased, change, heard);
    }
    if (!saved.ok() && saved.error().code == ErrorCode::kPreconditionFailed) {
        spdlog::warn("{}; this result is dropped", describe(saved.error()));
        metrics_.counter(kMetrics["atoll_leases_lost_total"]).Increment();
        return {};
    }
    if (saved.ok()) count_step(leased.task, change.task, leased.now_ms, metrics_);
    return saved;
}

TaskChange WorkerPool::step(const LeasedTask& leased, Heard& heard) {
    const auto start = std::chrono::steady_clock::now();
    auto change = contained([&]() -> Result<TaskChange> { return do_step(leased, heard); });
    if (!change.ok()) change = fail(leased, "what the site says cannot be read: " + describe(change.error()));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    metrics_.histogram(kMetrics["atoll_step_duration_seconds"], {{"step", name_of_step(leased.task)}})
        .Observe(time.count());
    log_change(*change);
    return std::move(change).value();
}

TaskChange WorkerPool::do_step(const LeasedTask& leased, Heard& heard) {
    const Task& task = leased.task;
    if (!leased.fault.empty()) return give_up(task, leased.fault);
    if (!has_live_attempt(task))
        return task.cancel_requested && !is_continued(task) ? cancel_idle(task) : begin_attempt(task);
    const std::int64_t now_ms = leased.now_ms;
    const auto site = connections_.site_for_step(leased.facility);
    if (task.cancel_requested && task.attempt->step == Step::kStaging) {  // nothing was submitted that could run there
        if (task.attempt->since_ms != 0) stop_staging(task, *site);
        return apply(task, Cancelled{}, connections_.poll_policy(leased.facility), now_ms);
    }
    const PollPolicy& poll_policy = connections_.poll_policy(leased.facility);
    const auto begin = std::chrono::steady_clock::now();
    Outcome outcome = task.cancel_requested ? runner_.cancel(task, *site) : runner_.run(task, *site, now_ms);
    using std::chrono::milliseconds;
    const std::int64_t took_ms =
        std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin).count();
    heard = Heard::kAnswer;
    TaskChange change = apply(task, outcome, poll_policy, now_ms, took_ms);
    std::optional<Outcome> ended;
    if (withdraws_continuation(task, change.task)) ended = runner_.withdraw_continuation(task, *site);
    if (leaves_batch_job(task, change.task)) ended = runner_.cancel(task, *site);
    // All that the step has come to is found again, when what it leaves there is known to be gone.
    if (ended && std::holds_alternative<Unreachable>(*ended))
        change = apply(task, outcome = *ended, poll_policy, now_ms);
    if (const auto* unknown = std::get_if<Unreachable>(&outcome)) {
        heard = unknown->is_of_facility ? Heard::kSilence : Heard::kNotAsked;  // it may be the store that is away
        spdlog::warn("facility {}: {} of task {}: {}", task.facility, name_of_step(task), task.id, unknown->why);
    }
    if (heard == Heard::kAnswer) read_logs(task, change, *site);
    const auto* watched = std::get_if<Observed>(&outcome);
    const bool is_running = watched != nullptr && !watched->exit_code;
    if (is_running && change.task.attempt->step == Step::kFailed) end_at_site(task, *site);
    return change;
}

TaskChange WorkerPool::fail(const LeasedTask& leased, const std::string& why) {
    const std::string reason = shorten(json::printable(why), kGivenUpBytesMax);
    spdlog::error("task {}: {} gave up: {}", leased.task.id, name_of_step(leased.task), reason);
    const auto site = connections_.site_for_step(leased.facility);
    if (may_run(leased.task)) end_at_site(leased.task, *site);
    TaskChange change = fail_step(leased.task, reason, connections_.poll_policy(leased.facility));
    if (has_live_attempt(leased.task)) read_logs(leased.task, change, *site);
    return change;
}

// Of an attempt that has come to its end, and that had a batch job.
void WorkerPool::read_logs(const Task& before, TaskChange& change, Site& site) {
    const bool has_written = before.attempt->step != Step::kStaging && !before.job.empty();
    if (!has_written || !is_finished(change.task.attempt->step)) return;
    const auto read =
        contained([&]() -> Result<std::vector<AttemptLogs>> { return runner_.read_logs(change.task, site); });
    if (read.ok()) change.logs = *read;
}

// What an attempt that failed before its batch job ended still has running there would keep the next one waiting.
void WorkerPool::end_at_site(const Task& task, Site& site) {
    const auto ended = contained([&]() -> Result<Outcome> { return runner_.cancel(task, site); });
    const auto* unknown = ended.ok() ? std::get_if<Unreachable>(&*ended) : nullptr;
    if (ended.ok() && unknown == nullptr) return;
    spdlog::warn("facility {}: task {} may go on there: {}", task.facility, task.id,
                 unknown != nullptr ? unknown->why : describe(ended.error()));
}

// Its site is not waited for: without its token, which ends with the attempt, nothing is brought for long.
void WorkerPool::stop_staging(const Task& task, Site& site) {
    const Status stopped = contained([&] { return runner_.stop_staging(task, site); });
    if (!stopped.ok())
        spdlog::warn("facility {}: task {} may go on staging there: {}", task.facility, task.id,
                     describe(stopped.error()));
}

Status WorkerPool::save(const LeasedTask& leased, const TaskChange& change, Heard heard) {
    const auto once = [&]() -> Status {
        ATOLL_TRY(auto connection, pool_.acquire());
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
        const Task& task = change.task;
        const bool ends_task = is_finished(task.state) && task.kind() != TaskKind::kClean;
        const bool is_silent = heard == Heard::kSilence;  // for which a round may not wait much longer
        // Locks are taken in one order everywhere: the job, then its tasks.
        bool job_goes_on = false;
        if (!task.job.empty() && (ends_task || is_silent || !change.events.empty())) {
            ATOLL_TRY(const JobState state, lock_job_state(transaction, task.job));
            job_goes_on = !is_finished(state);
        }
        ATOLL_RETURN_IF_ERROR(save_task(transaction, change, leased.lease.fence));
        if (task.kind() == TaskKind::kPrepare && task.state == TaskState::kFailed)
            ATOLL_RETURN_IF_ERROR(insert_task(transaction, cleaning_after(task)));
        if (job_goes_on && !change.refusal.empty())
            ATOLL_RETURN_IF_ERROR(record_refusal(transaction, topics_, task.job, task.facility, change.refusal));
        // The event that ends a job is its last one.
        if (job_goes_on) ATOLL_RETURN_IF_ERROR(record_events(transaction, topics_, task.job, change.events));
        if (job_goes_on && is_silent)
            ATOLL_RETURN_IF_ERROR(advance_job(transaction, topics_, task.job));
        else if (job_goes_on && ends_task)
            ATOLL_RETURN_IF_ERROR(advance_after_end(transaction, topics_, task));
        return transaction.commit();
    };
    Status status = contained(once);
    for (int tries = 1; !status.ok() && is_transient(status.error().code) && tries < kSaveTries; ++tries) {
        std::this_thread::sleep_for(backoff_delay(tries, kSaveWait, kSaveWaitMax));
        status = contained(once);
    }
    return status;
}

Status WorkerPool::close_late_rounds() {
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(const auto jobs, late_jobs(*connection));
    const auto advance_alone = [&](const std::string& job) -> Status {
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
        ATOLL_RETURN_IF_ERROR(advance_job(transaction, topics_, job));
        return transaction.commit();
    };
    for (const auto& job : jobs) {
        const Status status = contained([&] { return advance_alone(job); });
        if (status.ok()) continue;
        // Without a database there is no going on; any other fault is this job's alone.
        if (!connection->healthy()) return status;
        spdlog::warn("job {}: what is late there could not be closed: {}", job, describe(status.error()));
    }
    return {};
}

Status WorkerPool::count() {
    metrics_.gauge(kMetrics["atoll_workers_busy"]).Set(static_cast<double>(steps_.count()));
    if (std::chrono::steady_clock::now() - counted_ < kCountInterval) return {};
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(const auto counts, count_by_state(*connection));
    ATOLL_TRY(const auto state, read_federation_state(*connection));
    show(counts, metrics_);
    show(state, metrics_);
    ATOLL_RETURN_IF_ERROR(end_counter_.look(*connection, metrics_));
    counted_ = std::chrono::steady_clock::now();
    return {};
}

}  // namespace atl::dispatch
