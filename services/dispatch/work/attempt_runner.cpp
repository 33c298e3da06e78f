#include "services/dispatch/work/attempt_runner.h"

#include <algorithm>
#include <utility>

#include "services/dispatch/db/tasks.h"
#include "services/dispatch/sites/failure_text.h"
#include "services/dispatch/sites/script_site.h"
#include "services/dispatch/work/preparation.h"
#include "shared/base/contained.h"
#include "shared/json/printable.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::int64_t kStderrBytes = 16 << 10;  // looked at: mpirun's notices come after the trainer's own words
constexpr std::size_t kFailureBytesMax = 500;

// The store's own word, and not the 404 of something that stands in its place.
bool is_unknown_version(const Error& error) {
    return error.code == ErrorCode::kNotFound && error.field == "version";
}

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

// What keeps a staged version at the site: the job or preparation that uses it.
const std::string& owner(const Task& task) {
    return task.job.empty() ? task.preparation : task.job;
}

BatchJobRef batch_job_ref(const Task& task, const Site& site) {
    return {batch_job_name(task), site.task_directory(task.id, task.attempt->number)};
}

// kInvalidArgument: the facility cannot give what it asks for, since its record has changed.
Result<BatchJob> describe_batch_job(const Task& task, const Site& site) {
    const std::string trainer = site.program("atoll-trainer");
    BatchJob job{batch_job_ref(task, site), site.facility().environment};
    job.launcher = site.facility().launcher;
    std::visit(
        Overloaded{
            [&](const TrainParams& train) {
                job.commands = {{trainer, "train", "--model", site.model_directory(train.base), "--data",
                                 site.path(train.path) + "/train", "--out", "out", "--config", "run.json", "--resume"}};
                job.resources = train.resources;
                job.run_json = train.training;
                for (std::int64_t earlier = task.attempt->number - 1; earlier > 0; --earlier)
                    job.earlier_attempts.push_back(site.task_directory(task.id, earlier));
            },
            [&](const EvaluateParams& evaluate) {
                job.resources = site.facility().evaluation;
                for (const auto& model : evaluate.models)
                    job.commands.push_back({trainer, "eval", "--model", site.model_directory(model.digest), "--data",
                                            site.path(evaluate.path) + "/validation"});
            },
            [&](const PrepareParams& prepare) {
                job.resources = site.facility().preparation;
                job.commands = {{"mkdir", "-p", "out"}};
                for (const std::string split : {"train", "validation"})
                    job.commands.push_back(
                        {trainer, "tokenize", "--tokenizer", site.model_directory(prepare.tokenizer_digest), "--input",
                         site.path(prepare.input), "--template", prepare.prompt_template, "--out", "out/" + split,
                         "--seq-len", std::to_string(prepare.seq_len), "--batching", prepare.batching, "--split", split,
                         "--validation-percent", std::to_string(prepare.validation_percent)});
                // Kept here, as out/ moves to its final place.
                for (const std::string split : {"train", "validation"})
                    job.commands.push_back({"cp", "out/" + split + "/data.json", split + ".data.json"});
            },
            [](const CleanParams&) { check(false, "cleaning up submits no batch job"); }},
        task.params);
    ATOLL_RETURN_IF_ERROR(check_resources(job.resources, site.facility(), "resources"));
    return job;
}

}  // namespace

AttemptRunner::AttemptRunner(const Settings& settings, const Catalog& catalog, auth::Issuer issuer, pg::Pool& pool,
                             SiteFactory make_site)
    : settings_(settings),
      catalog_(catalog),
      issuer_(std::move(issuer)),
      pool_(pool),
      make_site_(std::move(make_site)) {}

std::unique_ptr<Site> AttemptRunner::site(const Facility& facility) {
    if (make_site_) return make_site_(facility);
    const std::lock_guard lock(mutex_);
    Connection& connection = connections_[facility.name];
    if (connection.transport == nullptr || connection.spec != facility.transport)
        connection = {facility.transport,
                      make_transport(facility.transport, settings_.control_directory, stop_.get_token())};
    // At a remote site nothing is known of our own directories: there the programs are found in PATH.
    return std::make_unique<ScriptSite>(facility, connection.transport,
                                        facility.transport.kind == "local" ? settings_.programs : "");
}

const PollPolicy& AttemptRunner::poll_policy(const Facility& facility) const {
    return facility.transport.kind == "ssh" ? settings_.ssh_poll_policy : settings_.local_poll_policy;
}

Result<std::string> AttemptRunner::script(const Task& task, const Facility& facility) {
    ATOLL_TRY(const BatchJob job, describe_batch_job(task, *site(facility)));
    return render_job_script(job, *make_batch_system(facility));
}

Outcome AttemptRunner::run(const Task& task, const Facility& facility, std::int64_t now_ms) {
    const auto at = site(facility);
    auto outcome = run_step(task, *at, now_ms);
    if (outcome.ok()) return std::move(outcome).value();
    Outcome failure = outcome_of(task, outcome.error());
    if (auto* unknown = std::get_if<Unreachable>(&failure)) unknown->is_silent = is_silence(outcome.error());
    return failure;
}

Outcome AttemptRunner::cancel(const Task& task, const Facility& facility) {
    const auto at = site(facility);
    const Status status = at->cancel(batch_job_ref(task, *at));
    if (status.ok()) return Cancelled{};
    return Unreachable{json::printable(describe(status.error())), is_silence(status.error())};
}

Result<Outcome> AttemptRunner::run_step(const Task& task, Site& site, std::int64_t now_ms) {
    if (!task.damage.empty()) {  // what it has running ends with it
        ATOLL_RETURN_IF_ERROR(site.cancel(batch_job_ref(task, site)));
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
    ATOLL_RETURN_IF_ERROR(
        site.stage({needed_versions(task.params), owner(task), settings_.store_url_for_sites, token}));
    return Outcome(Staged{});
}

Result<Outcome> AttemptRunner::submit(const Task& task, Site& site) {
    ATOLL_TRY(const BatchJob job, describe_batch_job(task, site));
    ATOLL_TRY(const std::string id, site.submit(job));
    return Outcome(Submitted{id});
}

Result<Outcome> AttemptRunner::observe(const Task& task, Site& site, std::int64_t now_ms) {
    ATOLL_TRY(auto found, look(task, site, now_ms));
    Look& look = found.answer;
    Observed observed{look.started,
                      look.exit_code,
                      std::move(look.lines),
                      look.log_offset,
                      look.log_is_drained,
                      found.asked_ms,
                      {},
                      std::nullopt,
                      0};
    if (observed.exit_code && *observed.exit_code != 0 && observed.log_is_drained) {
        const std::string log = batch_job_ref(task, site).directory + "/stderr.log";
        ATOLL_TRY(const std::string tail, site.tail(log, kStderrBytes));
        observed.stderr_tail = failure_text(tail, kFailureBytesMax);
    }
    // The local batch system never ends a job by itself.
    const bool is_asked = observed.exit_code
                              ? site.facility().batch.kind != "local" && may_be_interrupted(*observed.exit_code)
                              : should_ask_batch(*task.attempt, poll_policy(site.facility()), now_ms);
    if (is_asked) {
        ATOLL_TRY(const auto answer, queue_status(task, site, now_ms));
        observed.queue_status = answer.answer;
        observed.batch_asked_ms = answer.asked_ms;
    }
    return Outcome(std::move(observed));
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

// One script looks at as many of the facility's attempts as it may.
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
                            std::vector<LookOrder> orders;
                            for (const Task& one : tasks)
                                orders.push_back({batch_job_ref(one, site).directory, one.attempt->log_offset});
                            return site.look(orders);
                        }});
}

// One query about all attempts that the facility's batch system may know.
Result<AnswerCache<BatchAnswer>::Found> AttemptRunner::queue_status(const Task& task, Site& site, std::int64_t now_ms) {
    const Attempt& attempt = *task.attempt;
    return queue_status_.find({task, attempt.batch_asked_ms,
                               batch_interval_ms(attempt, poll_policy(site.facility()), now_ms), now_ms,
                               [](const BatchAnswer&) { return true; }, [&] { return tasks_beside(task); },
                               [&](const std::vector<Task>& tasks) {
                                   std::vector<BatchJobRef> jobs;
                                   for (const Task& one : tasks) jobs.push_back(batch_job_ref(one, site));
                                   return site.ask_batch(jobs);
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
    ATOLL_TRY(const std::string token, issue_token(task));
    Json metrics = update_metrics(summary);
    const Json meta = {
        {"parents", Json::array({train.base})}, {"job", task.job}, {"round", task.round}, {"metrics", metrics}};
    ATOLL_TRY(const PushAnswer answer, site.push({batch_job_ref(task, site).directory, train.output_model,
                                                  settings_.store_url_for_sites, token, meta}));
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
    if (!pushed.ok() && is_unknown_version(pushed.error()))
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
    ATOLL_RETURN_IF_ERROR(site.clean(owner(task), ids));
    return Outcome(Collected{Json::object()});
}

}  // namespace atl::dispatch
