#include "services/dispatch/work/attempt_runner.h"

#include <algorithm>
#include <utility>

#include "services/dispatch/db/tasks.h"
#include "services/dispatch/domain/attempt_end.h"
#include "services/dispatch/domain/continuation.h"
#include "services/dispatch/domain/site_trouble.h"
#include "services/dispatch/domain/training_settings.h"
#include "services/dispatch/sites/failure_text.h"
#include "services/dispatch/sites/image_command.h"
#include "services/dispatch/sites/script_site.h"
#include "services/dispatch/sites/stream_site.h"
#include "services/dispatch/sites/transport/ssh_master.h"
#include "services/dispatch/work/batch_job.h"
#include "services/dispatch/work/preparation.h"
#include "services/dispatch/work/step_transport.h"
#include "shared/base/contained.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::int64_t kStderrBytes = 16 << 10;  // looked at: mpirun's notices come after the trainer's own words
constexpr std::size_t kFailureBytesMax = 500;
constexpr std::size_t kUnreachableBytesMax = 2000;
constexpr std::size_t kJobIdBytesMax = 1 << 10;
constexpr std::int64_t kLogTries = 3;
constexpr std::int64_t kLoginPause_ms = 15000;
constexpr std::int64_t kMissingLogsMax = 8;  // read at once

std::vector<std::string> needed_versions(const TaskParams& params) {
    std::vector<std::string> digests;
    std::visit(Overloaded{[&](const TrainParams& train) { digests = {train.base}; },
                          [&](const EvaluateParams& evaluate) {
                              for (const auto& model : evaluate.models) digests.push_back(model.digest);
                          },
                          [&](const PrepareParams& prepare) { digests = {prepare.tokenizer_digest}; },
                          [](const CleanParams&) {}},
               params);
    return digests;
}

// Looking whether one more login is allowed costs the site nothing. A batch system that is back is to be found soon.
Unreachable unreachable(const Error& error) {
    if (error.cause == Cause::kBatchSystem)
        return {json::printable(error.message), false, SilentQueues::kPause_ms, /*is_of_batch_system=*/true};
    const bool is_soon = error.cause == Cause::kLoginsSpent;
    return {shorten(json::printable(describe(error)), kUnreachableBytesMax), is_of_facility(error),
            is_soon ? kLoginPause_ms : 0};
}

Outcome cancelled_or_unknown(const Status& status) {
    if (status.ok()) return Cancelled{};
    return unreachable(status.error());
}

// What keeps a staged version at the site: the job or preparation that uses it.
const std::string& owner(const Task& task) {
    return task.job.empty() ? task.preparation : task.job;
}

std::vector<LookOrder> look_orders(const std::vector<Task>& tasks, const Site& site) {
    std::vector<LookOrder> orders;
    for (const Task& task : tasks) orders.push_back({batch_job_ref(task, site).directory, task.attempt->log_offset});
    return orders;
}

std::vector<BatchJobRef> batch_job_refs(const std::vector<Task>& tasks, const Site& site) {
    std::vector<BatchJobRef> jobs;
    for (const Task& task : tasks) jobs.push_back(batch_job_ref(task, site));
    return jobs;
}

// No task's id begins so.
std::string check_task(const CheckJob& job) {
    return "check-" + job.id;
}

BatchJobRef check_job_ref(const CheckJob& job, const Site& site) {
    return {"atoll-" + check_task(job) + "-1", site.task_directory(check_task(job), 1)};
}

}  // namespace

AttemptRunner::AttemptRunner(const Settings& settings, const Catalog& catalog, auth::Issuer issuer, pg::Pool& pool,
                             SiteFactory make_site)
    : settings_(settings),
      catalog_(catalog),
      issuer_(std::move(issuer)),
      pool_(pool),
      make_site_(std::move(make_site)),
      stream_turns_(std::max<std::int64_t>(1, settings.workers / 2)) {}

std::unique_ptr<Site> AttemptRunner::site(const Facility& facility) {
    return make_site_ ? make_site_(facility) : site_through(facility, transport(facility));
}

std::unique_ptr<Site> AttemptRunner::site_for_step(const Facility& facility) {
    if (make_site_) return make_site_(facility);
    return site_through(facility, std::make_shared<StepTransport>(transport(facility)));
}

std::shared_ptr<Transport> AttemptRunner::transport(const Facility& facility) {
    const std::lock_guard lock(mutex_);
    Connection& connection = connections_[facility.name];
    if (connection.transport == nullptr || connection.spec != facility.transport)
        connection = {facility.transport, make_transport(facility, settings_.ssh, stop_.get_token())};
    return connection.transport;
}

std::unique_ptr<Site> AttemptRunner::site_through(const Facility& facility, std::shared_ptr<Transport> transport) {
    if (facility.transport.data == "ssh")
        return std::make_unique<StreamSite>(facility, std::move(transport), "", stream_turns_);
    // At a remote site nothing is known of our own directories: there the programs are found in PATH.
    return std::make_unique<ScriptSite>(facility, std::move(transport),
                                        facility.transport.kind == "local" ? settings_.programs : "");
}

SiteCheck AttemptRunner::check_facility(const Facility& facility, std::int64_t now_ms) {
    SiteCheck found = site(facility)->check({store_url_for(facility, settings_), static_cast<double>(now_ms) / 1000});
    if (found.no_batch_answer && found.no_batch_answer->empty()) silent_queues_.note_answer(facility.name);
    return found;
}

Result<std::string> AttemptRunner::submit_check(const Facility& facility, const CheckJob& check) {
    const auto at = site(facility);
    return at->submit({.ref = check_job_ref(check, *at),
                       .environment = facility.environment,
                       .commands = {{at->program("atoll-trainer"), "report"}},
                       .resources = check.resources,
                       .launcher = facility.launcher,
                       .image_runner = render_image_runner(facility),
                       .image_check = render_image_report(facility),
                       .is_check = true});
}

Result<CheckJobSeen> AttemptRunner::look_at_check(const Facility& facility, const CheckJob& check) {
    const auto at = site(facility);
    const BatchJobRef ref = check_job_ref(check, *at);
    ATOLL_TRY(const auto looks, at->look({{ref.directory, 0}}));
    const Look& look = looks.at(0);
    if (look.exit_code) {
        ATOLL_TRY(const std::string said, at->tail(ref.directory + "/stderr.log", kStderrBytes));
        return CheckJobSeen{
            "ended", "", judge_check_job(look.lines, look.exit_code, failure_text(said, kFailureBytesMax), facility)};
    }
    ATOLL_TRY(const auto answers, at->ask_batch({ref}));
    const BatchAnswer& answer = answers.at(0);
    if (answer.state == BatchState::kQueued) return CheckJobSeen{"queued", answer.reason};
    if (answer.state == BatchState::kRunning) return CheckJobSeen{"running", answer.reason};
    // It may have ended since it was looked at.
    ATOLL_TRY(const auto again, at->look({{ref.directory, 0}}));
    if (again.at(0).exit_code) return CheckJobSeen{"running"};
    const std::string how = answer.reason.empty() ? "the batch system does not know the job" : answer.reason;
    return CheckJobSeen{"ended", how, judge_check_job(again.at(0).lines, {}, how, facility)};
}

Status AttemptRunner::drop_check(const Facility& facility, const CheckJob& check) {
    const auto at = site(facility);
    return at->remove(check_job_ref(check, *at));
}

Result<std::string> AttemptRunner::show_host_key(const Facility& facility) const {
    if (facility.transport.kind != "ssh") return conflict(facility.name + " is this machine: it has no host key");
    return read_host_key(facility.transport, settings_.ssh, stop_.get_token());
}

Result<std::vector<std::string>> AttemptRunner::login_command(const Facility& facility) const {
    if (facility.transport.kind != "ssh") return conflict(facility.name + " is this machine: nobody logs in to it");
    return dispatch::login_command(facility.name, facility.transport, settings_.ssh);
}

void AttemptRunner::disconnect(const std::string& facility) {
    silent_queues_.note_answer(facility);
    const std::lock_guard lock(mutex_);
    connections_.erase(facility);
}

const PollPolicy& AttemptRunner::poll_policy(const Facility& facility) const {
    return facility.transport.kind == "ssh" ? settings_.ssh_poll_policy : settings_.local_poll_policy;
}

Result<std::string> AttemptRunner::script(const Task& task, const Facility& facility) {
    ATOLL_TRY(const BatchJob job, describe_batch_job(task, *site(facility)));
    return render_job_script(job, *make_batch_system(facility));
}

Outcome AttemptRunner::run(const Task& task, Site& site, std::int64_t now_ms) {
    auto outcome = run_step(task, site, now_ms);
    if (outcome.ok()) return std::move(outcome).value();
    Outcome failure = outcome_of(task, outcome.error());
    if (std::holds_alternative<Unreachable>(failure)) return unreachable(outcome.error());
    return failure;
}

Outcome AttemptRunner::cancel(const Task& task, Site& site) {
    return cancelled_or_unknown(end_batch_jobs(task, site));
}

Outcome AttemptRunner::withdraw_continuation(const Task& task, Site& site) {
    return cancelled_or_unknown(site.cancel(batch_job_ref(continuation_of(task), site)));
}

// What waits for the end of the attempt's batch job goes first.
Status AttemptRunner::end_batch_jobs(const Task& task, Site& site) {
    if (!task.attempt->continuation.empty())
        ATOLL_RETURN_IF_ERROR(site.cancel(batch_job_ref(continuation_of(task), site)));
    return site.cancel(batch_job_ref(task, site));
}

std::vector<AttemptLogs> AttemptRunner::read_logs(const Task& task, Site& site) {
    std::vector<AttemptLogs> logs = logs_to_read(task, site.facility());
    std::vector<std::string> files;
    for (const AttemptLogs& one : logs)
        for (const char* file : kLogFiles) files.push_back(site.task_directory(one.task, one.attempt) + "/" + file);
    if (files.empty()) return logs;
    const auto ends = site.tails(files, site.facility().logs.bytes_max);
    if (!ends.ok())  // they stay where they are, and can be asked for
        spdlog::warn("facility {}: logs are not kept: {}", site.facility().name, describe(ends.error()));
    std::size_t at = 0;
    for (AttemptLogs& one : logs) {
        --one.tries;
        if (!ends.ok()) continue;
        one.tries = 0;
        for (const char* file : kLogFiles) one.text[file] = (*ends)[at++];
    }
    return logs;
}

std::vector<AttemptLogs> AttemptRunner::logs_to_read(const Task& task, const Facility& facility) const {
    std::vector<AttemptLogs> logs;
    const auto find_missing = [&]() -> Status {
        ATOLL_TRY(auto connection, pool_.acquire());
        ATOLL_TRY(logs, missing_logs(*connection, task, kMissingLogsMax));
        return {};
    };
    if (const Status found = find_missing(); !found.ok())
        spdlog::warn("task {}: no earlier logs are looked for: {}", task.id, describe(found.error()));
    if (task.kind() != TaskKind::kClean) logs.push_back({task.id, task.attempt->number, task.attempt->step, kLogTries});
    std::erase_if(logs, [&](const AttemptLogs& one) { return !gives_logs(facility.logs, one.step); });
    return logs;
}

Status AttemptRunner::stop_staging(const Task& task, Site& site) {
    return site.stop_staging({needed_versions(task.params), owner(task), batch_job_name(task), {}, {}});
}

Result<Outcome> AttemptRunner::run_step(const Task& task, Site& site, std::int64_t now_ms) {
    if (!task.damage.empty()) {  // what it has running ends with it
        ATOLL_RETURN_IF_ERROR(end_batch_jobs(task, site));
        return Outcome(Rejected{task.damage, true});
    }
    switch (task.attempt->step) {
        case Step::kStaging:
            return stage(task, site);
        case Step::kSubmitting:
            return submit(task, site);
        case Step::kQueued:
        case Step::kRunning:
            return observe(task, site, now_ms);
        case Step::kCollecting:
            return contained([&] { return collect(task, site); });  // what throws here is no refusal either
        case Step::kDone:
        case Step::kFailed:
        case Step::kInterrupted:
        case Step::kCancelled:
            break;
    }
    check(false, "a step of an attempt that has ended");
    return Outcome(Unreachable{});
}

Result<std::string> AttemptRunner::issue_token(const Task& task) const {
    auth::Principal principal;
    principal.subject = task.facility;
    principal.role = auth::Role::kFacility;
    auth::TaskScope scope;
    scope.facility = task.facility;
    scope.job = task.job;
    scope.task = task.id;
    scope.attempt = std::to_string(task.attempt->number);
    scope.round = task.round;
    scope.read_versions = needed_versions(task.params);
    if (const auto* train = std::get_if<TrainParams>(&task.params)) scope.write_model = train->output_model;
    // Behind the first model stand the updates of its round, which are too many to be named.
    if (std::holds_alternative<EvaluateParams>(task.params) && scope.read_versions.size() > 1) {
        scope.read_versions.resize(1);
        scope.read_updates = true;
    }
    principal.scope = std::move(scope);
    return issuer_.issue(std::move(principal), kAttemptTokenLife);
}

Result<Outcome> AttemptRunner::stage(const Task& task, Site& site) {
    ATOLL_TRY(const std::string token, issue_token(task));
    ATOLL_TRY(const auto moving, site.stage({needed_versions(task.params), owner(task), batch_job_name(task),
                                             store_url_for(site.facility(), settings_), token}));
    if (moving) return Outcome(*moving);
    return Outcome(Staged{});
}

Result<bool> AttemptRunner::is_job_paused(const Task& task) const {
    ATOLL_TRY(auto connection, pool_.acquire());
    return is_paused(*connection, task.job);
}

// A submission whose answer was lost, or a continuation.
Result<bool> AttemptRunner::was_submitted_before(const Task& task, Site& site) {
    const BatchJobRef job = batch_job_ref(task, site);
    const bool is_local = site.facility().batch.kind == "local";  // its queue is the attempts' directories
    const auto id = site.read_file(job.directory + (is_local ? "/process" : "/jobid"), kJobIdBytesMax);
    if (id.ok()) return true;
    if (id.error().code != ErrorCode::kNotFound) return id.error();
    if (is_local) return false;
    ATOLL_TRY(const auto answers, site.ask_batch({job}));
    return answers.front().state != BatchState::kUnknownToQueue;
}

Result<Outcome> AttemptRunner::submit(const Task& task, Site& site) {
    ATOLL_TRY(const bool paused, is_job_paused(task));
    if (paused) {  // what was submitted goes on, but nothing new begins
        ATOLL_TRY(const bool was_submitted, was_submitted_before(task, site));
        if (!was_submitted) return Outcome(HeldBack{});
    }
    ATOLL_TRY(const BatchJob job, describe_batch_job(task, site));
    if (!job.earlier_attempts.empty() && site.facility().batch.kind != "local") {
        // One that the site has put back into its queue would stand there for nothing, and its continuation behind it.
        Task before = task;
        --before.attempt->number;
        ATOLL_RETURN_IF_ERROR(site.cancel(batch_job_ref(before, site)));
    }
    ATOLL_TRY(const std::string id, site.submit(job));
    return Outcome(Submitted{id});
}

Result<Outcome> AttemptRunner::observe(const Task& task, Site& site, std::int64_t now_ms) {
    ATOLL_TRY(auto found, look(task, site, now_ms));
    Look& look = found.answer;
    if (!look.unknown.empty()) return unavailable("looking at the attempt: " + look.unknown);
    Observed observed;
    observed.started = look.started;
    observed.exit_code = look.exit_code;
    observed.lines = std::move(look.lines);
    observed.log_offset = look.log_offset;
    observed.log_is_drained = look.log_is_drained;
    observed.looked_ms = found.asked_ms;
    if (observed.exit_code && *observed.exit_code != 0 && observed.log_is_drained) {
        const std::string log = batch_job_ref(task, site).directory + "/stderr.log";
        ATOLL_TRY(const std::string tail, site.tail(log, kStderrBytes));
        observed.is_out_of_memory = tells_out_of_memory(tail);
        observed.is_of_site =
            is_out_of_space(tail) || (site.facility().image && is_container_not_started(*observed.exit_code, tail));
        if (site.facility().logs.give != "none") observed.stderr_tail = failure_text(tail, kFailureBytesMax);
    }
    // The local batch system never ends a job by itself.
    const auto tells_its_end = [&](std::int64_t exit_code) {
        return may_be_interrupted(exit_code) || (exit_code == 0 && stopped_early(task, observed.lines));
    };
    const bool is_asked = observed.exit_code
                              ? site.facility().batch.kind != "local" && tells_its_end(*observed.exit_code)
                              : should_ask_batch(*task.attempt, poll_policy(site.facility()), now_ms);
    if (is_asked) {
        // How a job has ended no answer tells that is older than its end.
        const std::int64_t after_ms =
            std::max(task.attempt->batch_asked_ms, observed.exit_code ? found.asked_ms - 1 : 0);
        const auto answer = queue_status(task, site, after_ms, now_ms);
        // What was seen counts without the batch system's word, but how a job that failed has ended is for it to say.
        if (!answer.ok() && (observed.exit_code || is_of_facility(answer.error()))) return answer.error();
        if (answer.ok()) {
            observed.queue_status = answer->answer;
            observed.batch_asked_ms = answer->asked_ms;
            if (!observed.exit_code && answer->answer.state == BatchState::kEnded)
                observed.batch_tail = read_batch_log(task, site);
        } else {
            observed.is_batch_system_silent = answer.error().cause == Cause::kBatchSystem;
            observed.no_queue_status =
                json::printable(observed.is_batch_system_silent ? answer.error().message : describe(answer.error()));
        }
    }
    if (!observed.exit_code && observed.no_queue_status.empty()) plan_continuation(task, site, now_ms, observed);
    return Outcome(std::move(observed));
}

// Why a job ended before its script's own record began: a template's command that failed, Slurm's own notices.
std::string AttemptRunner::read_batch_log(const Task& task, Site& site) {
    if (site.facility().logs.give == "none") return {};
    const auto tail = site.tail(batch_job_ref(task, site).directory + "/batch.log", kStderrBytes);
    return tail.ok() ? failure_text(*tail, kFailureBytesMax) : "";
}

// The next attempt's batch job is put into the queue while this one runs, so that the queue is waited for once. Where
// that cannot be done now the attempt is watched as before.
void AttemptRunner::plan_continuation(const Task& task, Site& site, std::int64_t now_ms, Observed& observed) {
    const auto* train = std::get_if<TrainParams>(&task.params);
    if (train == nullptr || site.facility().batch.kind == "local") return;
    if (should_submit_continuation(*task.attempt, now_ms)) {
        const auto submitted = submit_continuation(task, site);
        if (submitted.ok())
            observed.continuation = *submitted;
        else
            observed.no_continuation = "no continuation in the queue: " +
                                       shorten(json::printable(describe(submitted.error())), kFailureBytesMax);
        return;
    }
    if (!task.attempt->continuation.empty()) return;
    const auto limits = update_limits(train->training, train->resources.ranks(), train->rows, train->seq_len);
    const Json settings = limit_time(train->training, batch_time_s(site.facility().batch, train->resources));
    observed.outlives_its_time =
        limits.ok() && outlives(*task.attempt, limits->steps, settings.value("time_limit", 0.0));
}

Result<std::string> AttemptRunner::submit_continuation(const Task& task, Site& site) {
    ATOLL_TRY(const bool paused, is_job_paused(task));
    if (paused) return std::string();  // nothing new begins
    ATOLL_TRY(BatchJob job, describe_batch_job(continuation_of(task), site));
    job.ref.after = task.attempt->batch_id;
    return site.submit(job);
}

Result<std::vector<Task>> AttemptRunner::tasks_beside(const Task& task) const {
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(auto tasks, tasks_in_queue(*connection, task.facility));
    std::stable_sort(tasks.begin(), tasks.end(), [&](const Task& one, const Task& other) {
        const auto rank = [&](const Task& of) { return std::pair(of.id != task.id, of.attempt->looked_ms); };
        return rank(one) < rank(other);
    });
    return tasks;
}

// One script looks at as many of the facility's attempts as it may, and asks the batch system about them when that is
// due; a batch system that gave no answer is asked alone until it gives one, so that looks need not wait for it.
Result<AnswerCache<Look>::Found> AttemptRunner::look(const Task& task, Site& site, std::int64_t now_ms) {
    const Attempt& attempt = *task.attempt;
    return looks_.find({task, attempt.looked_ms, poll_interval_ms(attempt, poll_policy(site.facility()), now_ms),
                        now_ms, [&](const Look& look) { return look.log_begin == attempt.log_offset; },
                        [&]() -> Result<std::vector<Task>> {
                            ATOLL_TRY(auto tasks, tasks_beside(task));
                            tasks.resize(std::min(tasks.size(), kLooksMax));
                            return tasks;
                        },
                        [&](const std::vector<Task>& tasks) {
                            return asks_queue_with_looks(task, site, now_ms) ? look_and_ask(tasks, site, now_ms)
                                                                             : site.look(look_orders(tasks, site));
                        }});
}

bool AttemptRunner::asks_queue_with_looks(const Task& task, const Site& site, std::int64_t now_ms) {
    return !silent_queues_.is_silent(task.facility) &&
           should_ask_batch(*task.attempt, poll_policy(site.facility()), now_ms);
}

Result<std::vector<Look>> AttemptRunner::look_and_ask(const std::vector<Task>& tasks, Site& site, std::int64_t now_ms) {
    const std::string& facility = tasks.front().facility;
    auto found = site.look_and_ask(look_orders(tasks, site), batch_job_refs(tasks, site));
    ATOLL_RETURN_IF_ERROR(found);
    note_queue(facility, found->queue, now_ms);
    if (found->queue.ok()) queue_status_.put(facility, tasks, std::move(found->queue).value(), now_ms);
    return std::move(found->looks);
}

void AttemptRunner::note_queue(const std::string& facility, const Result<std::vector<BatchAnswer>>& answers,
                               std::int64_t now_ms) {
    if (answers.ok())
        silent_queues_.note_answer(facility);
    else if (answers.error().cause == Cause::kBatchSystem)
        silent_queues_.note_silence(facility, answers.error(), now_ms);
}

// One query about all attempts that the facility's batch system may know.
Result<AnswerCache<BatchAnswer>::Found> AttemptRunner::queue_status(const Task& task, Site& site, std::int64_t after_ms,
                                                                    std::int64_t now_ms) {
    return queue_status_.find({task, after_ms, batch_interval_ms(*task.attempt, poll_policy(site.facility()), now_ms),
                               now_ms, [](const BatchAnswer&) { return true; }, [&] { return tasks_beside(task); },
                               [&](const std::vector<Task>& tasks) -> Result<std::vector<BatchAnswer>> {
                                   if (auto silence = silent_queues_.find(task.facility, now_ms)) return *silence;
                                   auto answers = site.ask_batch(batch_job_refs(tasks, site));
                                   note_queue(task.facility, answers, now_ms);
                                   return answers;
                               }});
}

Result<Outcome> AttemptRunner::collect(const Task& task, Site& site) {
    if (const auto* train = std::get_if<TrainParams>(&task.params)) return push_update(task, *train, site);
    if (const auto* prepare = std::get_if<PrepareParams>(&task.params)) {
        ATOLL_TRY(Json result, publish_preparation(task, prepare->dataset, site, catalog_));
        return Outcome(Collected{std::move(result)});
    }
    return clean(task, site);
}

Result<Outcome> AttemptRunner::push_update(const Task& task, const TrainParams& train, Site& site) {
    const SummaryLine summary = task.attempt->summary.value_or(SummaryLine());
    ATOLL_TRY(const UpdateLimits limits,
              update_limits(train.training, train.resources.ranks(), train.rows, train.seq_len));
    if (const Status counts = check_counts(summary, limits); !counts.ok()) return refuse_update(counts.error());
    if (const Status ranks = check_ranks(summary, limits, train.resources.ranks()); !ranks.ok())
        return Outcome(Rejected{ranks.error().message, /*is_permanent=*/true});
    ATOLL_TRY(const std::string token, issue_token(task));
    Json metrics = update_metrics(summary);
    const Json meta = {
        {"parents", Json::array({train.base})}, {"job", task.job}, {"round", task.round}, {"metrics", metrics}};
    ATOLL_TRY(const PushAnswer answer, site.push({batch_job_ref(task, site).directory, train.output_model,
                                                  store_url_for(site.facility(), settings_), token, meta}));
    if (answer.moving) return Outcome(*answer.moving);
    if (answer.error && !answer.is_refused) return *answer.error;
    // What the store has of this attempt counts, whatever the site says. Whoever names a version need not have made it;
    // and what the site has lost may have been handed in, by a worker whose result was dropped.
    ATOLL_TRY(const std::string handed_in, catalog_.handed_in_version(task.id, task.attempt->number));
    // Files that are wrong would be made wrong again.
    if (answer.is_refused && handed_in.empty())
        return refuse_update(*answer.error, answer.error->code == ErrorCode::kInvalidArgument);
    if (!answer.is_refused && handed_in != answer.digest)
        return refuse_update(
            conflict("the version " + answer.digest + " that the site names was not handed in by this attempt"));
    const auto pushed = catalog_.model_version(train.output_model, handed_in);
    if (!pushed.ok() && pushed.error().code == ErrorCode::kNotFound && is_answer(pushed.error()))
        return refuse_update(not_found("the site says that it pushed " + handed_in + ", but the model " +
                                       train.output_model + " has no such version"));
    ATOLL_RETURN_IF_ERROR(pushed);
    if (const Status version = check_version(*pushed, train.base); !version.ok())
        return is_refusal(version.error()) ? refuse_update(version.error()) : Result<Outcome>(version.error());
    return Outcome(Collected{{{"version", handed_in},
                              {"samples", *summary.samples},
                              {"tokens", *summary.tokens},
                              {"metrics", std::move(metrics)}}});
}

Result<Outcome> AttemptRunner::clean(const Task& task, Site& site) {
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(const auto tasks, tasks_at(*connection, owner(task), task.facility));
    std::vector<std::string> ids;
    for (const auto& other : tasks)
        if (other.attempt) ids.push_back(other.id);
    if (ids.empty()) return Outcome(Collected{Json::object()});  // not even the work directory need be there
    ATOLL_TRY(const auto moving, site.clean(owner(task), ids));
    if (moving) return Outcome(*moving);
    return Outcome(Collected{Json::object()});
}

}  // namespace atl::dispatch
