#include "services/dispatch/work/attempt_runner.h"

#include <algorithm>
#include <utility>

#include "services/dispatch/db/tasks.h"
#include "services/dispatch/domain/attempt_end.h"
#include "services/dispatch/domain/continuation.h"
#include "services/dispatch/domain/evaluation_result.h"
#include "services/dispatch/domain/site_trouble.h"
#include "services/dispatch/domain/training_settings.h"
#include "services/dispatch/sites/failure_text.h"
#include "services/dispatch/work/batch_job.h"
#include "services/dispatch/work/copy_check.h"
#include "services/dispatch/work/preparation.h"
#include "shared/base/contained.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"
#include "shared/log/log.h"
#include "shared/site/attempt_files.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::size_t kJobIdBytesMax = 1 << 10;
constexpr std::int64_t kLogTries = 3;
constexpr std::int64_t kMissingLogsMax = 8;   // read at once
constexpr std::size_t kFailedModelsMax = 16;  // of an evaluation, whose reasons are read

// Of a training first the one that its update is made from.
std::vector<std::string> needed_versions(const TaskParams& params) {
    std::vector<std::string> digests;
    const auto add_model = [&](const std::string& model) {
        if (!model.empty()) digests.push_back(model);
    };
    std::visit(Overloaded{[&](const TrainParams& train) {
                              digests = {train.base};
                              add_model(train.model);
                          },
                          [&](const EvaluateParams& evaluate) {
                              for (const auto& model : evaluate.models) digests.push_back(model.digest);
                              add_model(evaluate.model);
                          },
                          [&](const PrepareParams& prepare) { digests = {prepare.tokenizer_digest}; },
                          [](const CleanParams&) {}},
               params);
    return digests;
}

Outcome cancelled_or_unknown(const Status& status) {
    if (status.ok()) return Cancelled{};
    return unreachable(status.error());
}

// For people: why the next attempt may find what a program did not find in the work directory; empty: it will not.
Result<std::string> why_lost(Site& site, const std::string& said) {
    const LostFile lost = find_lost_file(said, site.facility().work_dir);
    if (lost.is_broken) return std::string("its file system was away");
    if (lost.path.empty()) return std::string();
    const auto found = site.read_file(lost.path, 0);
    if (!found.ok() && is_transient(found.error().code)) return found.error();
    // What is there need not be a file that can be read.
    if (found.ok() || found.error().code != ErrorCode::kNotFound)
        return std::string("it is there now: its file system was away when the program started");
    return std::string(lost.path.starts_with(site.model_directory("")) ? "the next attempt stages it again" : "");
}

// The files for validation are looked at together with the others.
Status check_input(const PrepareParams& prepare, Site& site) {
    const Status checked = site.check_input(check_input_command(prepare, site));
    if (checked.ok() || prepare.validation_input.empty() ||
        checked.error().message.find(" is given twice") == std::string::npos)
        return checked;
    Error error = checked.error();
    error.message += "; what is for validation must not be among what is trained on";
    return error;
}

// What keeps a staged version at the site: the job or preparation that uses it.
const std::string& owner(const Task& task) {
    return task.job.empty() ? task.preparation : task.job;
}

}  // namespace

AttemptRunner::AttemptRunner(const Settings& settings, const Catalog& catalog, auth::Issuer issuer, pg::Pool& pool,
                             FacilityConnections& connections)
    : settings_(settings),
      catalog_(catalog),
      issuer_(std::move(issuer)),
      pool_(pool),
      connections_(connections),
      watch_(pool, connections) {}

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
        for (const char* file : site::kLogFiles)
            files.push_back(site.task_directory(one.task, one.attempt) + "/" + file);
    if (files.empty()) return logs;
    auto ends = site.tails(files, site.facility().logs.bytes_max);
    if (!ends.ok())  // they stay where they are, and can be asked for
        spdlog::warn("facility {}: logs are not kept: {}", site.facility().name, describe(ends.error()));
    std::size_t at = 0;
    for (AttemptLogs& one : logs) {
        --one.tries;
        if (!ends.ok()) continue;
        one.tries = 0;
        for (const std::string file : site::kLogFiles) {
            std::string& end = (*ends)[at++];
            if (file != site::kBatchLog || !end.empty()) one.text[file] = std::move(end);
        }
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
    if (const auto* evaluate = std::get_if<EvaluateParams>(&task.params); evaluate && evaluate->models.size() > 1) {
        scope.read_versions = {evaluate->models.front().digest};
        if (!evaluate->model.empty()) scope.read_versions.push_back(evaluate->model);
        scope.read_updates = true;
    }
    principal.scope = std::move(scope);
    return issuer_.issue(std::move(principal), kAttemptTokenLife);
}

// What a site does not find may be there again the next time. What the store has no more never is.
Status AttemptRunner::require_versions(const Task& task) const {
    for (const std::string& version : needed_versions(task.params)) {
        ATOLL_TRY(const bool is_held, catalog_.hold_version(version));
        if (!is_held)
            return invalid_argument("",
                                    "version " + version + ", which the task begins with, was removed from the store");
    }
    return {};
}

Result<Outcome> AttemptRunner::stage(const Task& task, Site& site) {
    // The coordinator had a public URL when the facility was added: the task waits until it has one again.
    if (const Status way = require_store_url(site.facility(), settings_); !way.ok())
        return unavailable(way.error().message);
    ATOLL_TRY(const std::string token, issue_token(task));
    const auto staged = site.stage({needed_versions(task.params), owner(task), batch_job_name(task),
                                    store_url_for(site.facility(), settings_), token});
    if (!staged.ok() && is_absent(staged.error())) ATOLL_RETURN_IF_ERROR(require_versions(task));
    ATOLL_RETURN_IF_ERROR(staged);
    if (staged->moving) return Outcome(*staged->moving);
    ATOLL_RETURN_IF_ERROR(check_copy(task, site));
    return Outcome(Staged{staged->bytes});
}

Result<bool> AttemptRunner::is_job_paused(const Task& task) const {
    ATOLL_TRY(auto connection, pool_.acquire());
    return is_paused(*connection, task.job);
}

// A submission whose answer was lost, or a continuation.
Result<bool> AttemptRunner::was_submitted_before(const Task& task, Site& site) {
    const BatchJobRef job = batch_job_ref(task, site);
    const BatchAbilities& batch = abilities_of(site.facility().batch.kind);
    const auto id = site.read_file(job.directory + "/" + batch.submitted_file, kJobIdBytesMax);
    if (id.ok()) return true;
    if (id.error().code != ErrorCode::kNotFound) return id.error();
    if (!batch.has_queues) return false;
    ATOLL_TRY(const auto answers, site.ask_batch({job}));
    return answers.front().state != BatchState::kUnknownToQueue;
}

// What a job asks for was in the facility's record when it was submitted: the record has changed since, and may be
// changed again.
Result<BatchJob> AttemptRunner::describe_due_job(const Task& task, const Site& site) {
    auto job = describe_batch_job(task, site);
    const bool has_queues = abilities_of(site.facility().batch.kind).has_queues;
    if (job.ok() || job.error().code != ErrorCode::kInvalidArgument || !has_queues) return job;
    const std::string& facility = site.facility().name;
    return with_cause(not_found("the record of " + facility + " has changed since: " + describe(job.error()) +
                                "; `atoll facility show " + facility + "` tells what it has now, `atoll facility set " +
                                facility + " --set batch.queues.NAME.MEMBER=VALUE` changes it"),
                      Cause::kSite);
}

Result<Outcome> AttemptRunner::submit(const Task& task, Site& site) {
    ATOLL_TRY(const bool paused, is_job_paused(task));
    if (paused) {  // what was submitted goes on, but nothing new begins
        ATOLL_TRY(const bool was_submitted, was_submitted_before(task, site));
        if (!was_submitted) return Outcome(HeldBack{});
    }
    ATOLL_TRY(const BatchJob job, describe_due_job(task, site));
    if (!job.earlier_attempts.empty() && abilities_of(site.facility().batch.kind).ends_jobs) {
        // One that the site has put back into its queue would stand there for nothing, and its continuation behind it.
        Task before = task;
        --before.attempt->number;
        ATOLL_RETURN_IF_ERROR(site.cancel(batch_job_ref(before, site)));
    }
    if (const auto* prepare = std::get_if<PrepareParams>(&task.params))
        ATOLL_RETURN_IF_ERROR(check_input(*prepare, site));
    ATOLL_TRY(const std::string id, site.submit(job));
    return Outcome(Submitted{id});
}

Result<Outcome> AttemptRunner::observe(const Task& task, Site& site, std::int64_t now_ms) {
    ATOLL_TRY(auto found, watch_.look(task, site, now_ms));
    Look& look = found.answer;
    if (!look.unknown.empty()) return unavailable("looking at the attempt: " + look.unknown);
    Observed observed;
    observed.started = look.started;
    observed.exit_code = look.exit_code;
    observed.lines = std::move(look.lines);
    observed.log_offset = look.log_offset;
    observed.log_is_drained = look.log_is_drained;
    observed.looked_ms = found.asked_ms;
    observed.free_kib = look.free_kib;
    if (observed.exit_code && *observed.exit_code != 0 && observed.log_is_drained)
        ATOLL_RETURN_IF_ERROR(read_failure(task, site, observed));
    const auto tells_its_end = [&](std::int64_t exit_code) {
        return may_be_interrupted(exit_code) || (exit_code == 0 && stopped_early(task, observed.lines));
    };
    const bool is_asked = observed.exit_code
                              ? abilities_of(site.facility().batch.kind).ends_jobs && tells_its_end(*observed.exit_code)
                              : should_ask_batch(*task.attempt, connections_.poll_policy(site.facility()), now_ms);
    if (is_asked) {
        // How a job has ended no answer tells that is older than its end.
        const std::int64_t after_ms =
            std::max(task.attempt->batch_asked_ms, observed.exit_code ? found.asked_ms - 1 : 0);
        const auto answer = watch_.ask_queue(task, site, after_ms, now_ms);
        // What was seen counts without the batch system's word, but how a job that failed has ended is for it to say.
        if (!answer.ok() && (observed.exit_code || is_of_facility(answer.error()))) return answer.error();
        if (answer.ok()) {
            observed.queue_status = answer->answer;
            observed.batch_asked_ms = answer->asked_ms;
            if (!observed.exit_code && answer->answer.state == BatchState::kEnded) read_batch_log(task, site, observed);
        } else {
            observed.is_batch_system_silent = answer.error().cause == Cause::kBatchSystem;
            observed.no_queue_status = json::printable(describe(answer.error()));
        }
    }
    if (may_tell_no_step(task, observed, now_ms)) observed.no_step = why_no_step(task, site);
    if (!observed.exit_code && observed.no_queue_status.empty()) plan_continuation(task, site, now_ms, observed);
    return Outcome(std::move(observed));
}

// Why an attempt has failed, as far as its programs have said.
Status AttemptRunner::read_failure(const Task& task, Site& site, Observed& observed) {
    const std::string directory = batch_job_ref(task, site).directory;
    const bool is_given = site.facility().logs.give != LogsGiven::kNone;
    ATOLL_TRY(const std::string tail, site.tail(directory + "/" + site::kStandardError, kStderrBytes));
    observed.is_out_of_memory = tells_out_of_memory(tail);
    observed.is_of_site = is_out_of_space(tail) || is_trainer_read_only(tail) ||
                          (site.facility().image && is_container_not_started(*observed.exit_code, tail));
    ATOLL_TRY(const std::string why_away, why_lost(site, tail));
    observed.was_away = !why_away.empty();
    if (is_given) observed.stderr_tail = failure_text(tail, kFailureBytesMax);
    if (observed.was_away) observed.stderr_tail += (observed.stderr_tail.empty() ? "" : "; ") + why_away;
    if (!is_given) return {};
    std::vector<std::size_t> failed = failed_models(task, observed.lines);
    failed.resize(std::min(failed.size(), kFailedModelsMax));
    if (failed.empty()) return {};
    std::vector<std::string> files;
    for (const std::size_t place : failed) files.push_back(directory + "/failed." + std::to_string(place));
    ATOLL_TRY(const auto ends, site.tails(files, kStderrBytes));
    for (std::size_t i = 0; i < failed.size(); ++i)
        observed.model_failures[failed[i]] = failure_text(ends[i], kFailureBytesMax);
    return {};
}

// What a rank says that waits for the others, or that nothing is said.
std::string AttemptRunner::why_no_step(const Task& task, Site& site) {
    const auto tail = site.tail(batch_job_ref(task, site).directory + "/" + site::kStandardError, kStderrBytes);
    const std::string_view said = tail.ok() ? rank_that_waits(*tail) : std::string_view();
    if (said.empty()) return "";
    if (site.facility().logs.give == LogsGiven::kNone) return "its ranks wait for their first exchange";
    return shorten(json::printable(std::string(said)), kFailureBytesMax);
}

// Why a job ended without a record of its own: a template's command that failed, Slurm's own notices.
void AttemptRunner::read_batch_log(const Task& task, Site& site, Observed& observed) {
    const auto tail = site.tail(batch_job_ref(task, site).directory + "/" + site::kBatchLog, kStderrBytes);
    if (!tail.ok()) return;
    observed.is_out_of_memory = tells_out_of_memory(*tail);
    if (site.facility().logs.give != LogsGiven::kNone) observed.batch_tail = failure_text(*tail, kFailureBytesMax);
}

// The next attempt's batch job is put into the queue while this one runs, so that the queue is waited for once. Where
// that cannot be done now the attempt is watched as before.
void AttemptRunner::plan_continuation(const Task& task, Site& site, std::int64_t now_ms, Observed& observed) {
    const auto* train = std::get_if<TrainParams>(&task.params);
    if (train == nullptr || !abilities_of(site.facility().batch.kind).takes_dependencies) return;
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
    ATOLL_TRY(BatchJob job, describe_due_job(continuation_of(task), site));
    job.ref.after = task.attempt->batch_id;
    return site.submit(job);
}

Result<Outcome> AttemptRunner::collect(const Task& task, Site& site) {
    if (const auto* train = std::get_if<TrainParams>(&task.params)) return push_update(task, *train, site);
    if (const auto* prepare = std::get_if<PrepareParams>(&task.params)) {
        auto result = publish_preparation(task, prepare->dataset, site, catalog_);
        if (!result.ok() && result.error().code == ErrorCode::kConflict)  // it stays so
            return Outcome(Rejected{describe(result.error()), /*is_permanent=*/true});
        ATOLL_RETURN_IF_ERROR(result);
        return Outcome(Collected{std::move(result).value()});
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
    if (train.output_owner) {
        const Status bound = catalog_.require_model_of(train.output_model, *train.output_owner);
        if (!bound.ok() && bound.error().code == ErrorCode::kConflict)
            return Outcome(Rejected{bound.error().message, /*is_permanent=*/true});
        ATOLL_RETURN_IF_ERROR(bound);
    }
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
    if (!pushed.ok() && is_absent(pushed.error()))
        return refuse_update(not_found("the site says that it pushed " + handed_in + ", but the model " +
                                       train.output_model + " has no such version"));
    ATOLL_RETURN_IF_ERROR(pushed);
    if (const Status version = check_version(*pushed, train.base, writes_change(train.training)); !version.ok())
        return is_refusal(version.error()) ? refuse_update(version.error()) : Result<Outcome>(version.error());
    const auto size = pushed->find("size");
    return Outcome(Collected{{{"version", handed_in},
                              {"samples", *summary.samples},
                              {"tokens", *summary.tokens},
                              {"metrics", std::move(metrics)}},
                             size != pushed->end() && size->is_number_integer() ? size->get<std::int64_t>() : 0});
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
