#include "services/dispatch/work/attempt_runner.h"

#include "services/dispatch/db/tasks.h"
#include "services/dispatch/sites/failure_text.h"
#include "services/dispatch/sites/job_script.h"
#include "services/dispatch/work/preparation.h"
#include "shared/base/shorten.h"
#include "shared/json/printable.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::chrono::hours kTokenLife{2};      // longer than a transfer may take
constexpr std::int64_t kStderrBytes = 16 << 10;  // looked at: mpirun's notices come after the trainer's own words
constexpr std::size_t kFailureBytesMax = 500;
constexpr std::size_t kReasonBytesMax = 2000;

// Parts of an error may be the site's words.
std::string reason_of(const Error& error) {
    return shorten(json::printable(describe(error)), kReasonBytesMax);
}

Outcome outcome_of(const Error& error) {
    std::string why = reason_of(error);
    if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kResourceExhausted)
        return Unreachable{std::move(why)};
    return Rejected{std::move(why), error.code == ErrorCode::kInvalidArgument};
}

// What the site handed in cannot be used.
Outcome no_good(const Error& error) {
    return Rejected{reason_of(error), false, true};
}

std::vector<std::string> versions_needed(const Task& task) {
    switch (task.kind) {
        case TaskKind::kTrain:
            return {task.params.at("base").get<std::string>()};
        case TaskKind::kPrepare:
            return {task.params.at("tokenizer_digest").get<std::string>()};
        case TaskKind::kEvaluate: {
            std::vector<std::string> digests;
            for (const auto& model : task.params.at("models")) digests.push_back(model.at("digest"));
            return digests;
        }
        case TaskKind::kClean:
            break;
    }
    return {};
}

// What keeps a staged version at the site: the job or preparation that uses it.
const std::string& pin_of(const Task& task) {
    return task.job.empty() ? task.preparation : task.job;
}

std::string directory_of(const Task& task, const Site& site) {
    return site.task_directory(task.id, task.attempt->number);
}

BatchJobRef job_ref_of(const Task& task, const Site& site) {
    return {operation_name(task), directory_of(task, site)};
}

std::string script_of(const Task& task, const Site& site) {
    const JobPlace place{operation_name(task), directory_of(task, site), site.program("atoll-trainer"),
                         &site.facility()};
    const Json& params = task.params;
    if (task.kind == TaskKind::kTrain) {
        const std::int64_t continues = task.attempt->continues;
        return train_script(place, {site.model_directory(params.at("base")), site.path(params.at("path")) + "/train",
                                    params.at("training"), params.at("ranks"),
                                    continues > 0 ? site.task_directory(task.id, continues) : std::string()});
    }
    if (task.kind == TaskKind::kPrepare)
        return tokenize_script(place, {site.model_directory(params.at("tokenizer_digest")),
                                       site.path(params.at("input")), params.at("template"), params.at("seq_len"),
                                       params.at("batching"), params.at("validation_percent")});
    EvaluateJob job{{}, site.path(params.at("path")) + "/validation"};
    for (const auto& model : params.at("models")) job.models.push_back(site.model_directory(model.at("digest")));
    return evaluate_script(place, job);
}

}  // namespace

AttemptRunner::AttemptRunner(const Settings& settings, const Catalog& catalog, auth::Issuer issuer, pg::Pool& pool)
    : settings_(settings), catalog_(catalog), issuer_(std::move(issuer)), pool_(pool) {}

Site AttemptRunner::site(const Facility& facility) {
    const std::lock_guard lock(mutex_);
    Connection& connection = connections_[facility.name];
    if (connection.transport == nullptr || connection.spec != facility.transport)
        connection = {facility.transport,
                      make_transport(facility.transport, settings_.control_directory, stop_.get_token())};
    // At a remote site nothing is known of our own directories: there the programs are found in PATH.
    return Site(facility, connection.transport, facility.transport.kind == "local" ? settings_.programs : "");
}

const PollPolicy& AttemptRunner::poll_policy(const Facility& facility) const {
    return facility.transport.kind == "ssh" ? settings_.ssh_pace : settings_.local_pace;
}

Outcome AttemptRunner::run(const Task& task, const Facility& facility, std::int64_t now_ms) {
    Site at = site(facility);
    switch (task.attempt->step) {
        case Step::kStaging:
            return stage(task, at);
        case Step::kSubmitting:
            return submit(task, at);
        case Step::kQueued:
        case Step::kRunning:
            return watch(task, at, now_ms);
        case Step::kCollecting:
            return collect(task, at);
        case Step::kDone:
        case Step::kFailed:
        case Step::kCancelled:
            break;
    }
    check(false, "a step of an attempt that has ended");
    return Unreachable{};
}

Outcome AttemptRunner::cancel(const Task& task, const Facility& facility) {
    Site at = site(facility);
    const Status status = at.cancel(job_ref_of(task, at));
    return status.ok() ? Outcome(Cancelled{}) : Outcome(Unreachable{reason_of(status.error())});
}

Result<std::string> AttemptRunner::facility_token(const Task& task, std::vector<std::string> read_versions) const {
    auth::Principal principal;
    principal.subject = task.facility;
    principal.role = auth::Role::kFacility;
    auth::TaskScope scope;
    scope.facility = task.facility;
    scope.job = task.job;
    scope.task = task.id;
    scope.attempt = std::to_string(task.attempt->number);
    scope.read_versions = std::move(read_versions);
    if (task.kind == TaskKind::kTrain) scope.write_model = task.params.at("output_model");
    principal.scope = std::move(scope);
    return issuer_.issue(std::move(principal), kTokenLife);
}

Outcome AttemptRunner::stage(const Task& task, Site& site) {
    const auto digests = versions_needed(task);
    const auto token = facility_token(task, digests);
    if (!token.ok()) return outcome_of(token.error());
    const Status status = site.stage(digests, pin_of(task), settings_.store_url_for_sites, *token);
    return status.ok() ? Outcome(Staged{}) : outcome_of(status.error());
}

Outcome AttemptRunner::submit(const Task& task, Site& site) {
    const auto id = site.submit({job_ref_of(task, site), script_of(task, site)});
    return id.ok() ? Outcome(Submitted{*id}) : outcome_of(id.error());
}

Outcome AttemptRunner::watch(const Task& task, Site& site, std::int64_t now_ms) {
    const std::string directory = directory_of(task, site);
    auto probe = site.probe(directory, task.attempt->log_offset);
    if (!probe.ok()) return outcome_of(probe.error());
    Observed observed{probe->started,
                      probe->exit_code,
                      std::move(probe->lines),
                      probe->log_offset,
                      probe->log_is_drained,
                      {},
                      std::nullopt,
                      0};
    if (observed.exit_code && *observed.exit_code != 0 && observed.log_is_drained) {
        const auto tail = site.tail(directory + "/stderr.log", kStderrBytes);
        if (!tail.ok()) return outcome_of(tail.error());
        observed.stderr_tail = failure_text(*tail, kFailureBytesMax);
    }
    if (!observed.exit_code && should_ask_batch(*task.attempt, poll_policy(site.facility()), now_ms)) {
        const auto answer = queue_status(task, site, now_ms);
        if (!answer.ok()) return outcome_of(answer.error());
        observed.queue_status = answer->state;
        observed.batch_asked_ms = answer->asked_ms;
    }
    return observed;
}

// One query about all attempts that the facility's batch system may know serves them all.
Result<QueueStatus> AttemptRunner::queue_status(const Task& task, Site& site, std::int64_t now_ms) {
    const std::string& facility = site.facility().name;
    const auto operations = [&]() -> Result<std::vector<BatchJobRef>> {
        ATOLL_TRY(auto connection, pool_.acquire());
        ATOLL_TRY(const auto tasks, tasks_in_queue(*connection, facility));
        std::vector<BatchJobRef> live;
        for (const Task& one : tasks) live.push_back(job_ref_of(one, site));
        return live;
    };
    return queue_status_.state_of({facility, operation_name(task), task.attempt->batch_asked_ms,
                                   poll_policy(site.facility()).batch_poll_ms, now_ms, operations,
                                   [&](const auto& live) { return site.ask_batch(live); }});
}

Outcome AttemptRunner::collect(const Task& task, Site& site) {
    if (task.kind == TaskKind::kTrain) return push_update(task, site);
    if (task.kind == TaskKind::kPrepare) return finish_preparation(task, site);
    return clean(task, site);
}

Result<UpdateLimits> AttemptRunner::limits_of(const Task& task) const {
    const Json& params = task.params;
    ATOLL_TRY(const DatasetShape shape, catalog_.dataset_shape(params.at("dataset"), params.at("dataset_version")));
    return update_limits(params.at("training"), params.at("ranks"), shape.rows, shape.seq_len);
}

Outcome AttemptRunner::push_update(const Task& task, Site& site) {
    const std::string base = task.params.at("base");
    const auto token = facility_token(task, {base});
    if (!token.ok()) return outcome_of(token.error());
    const SummaryLine summary = task.attempt->summary.value_or(SummaryLine());
    const auto limits = limits_of(task);
    if (!limits.ok()) return outcome_of(limits.error());
    if (const Status counts = check_counts(summary, *limits); !counts.ok()) return no_good(counts.error());
    Json metrics = metrics_of(summary);
    const Json meta = {
        {"parents", Json::array({base})}, {"job", task.job}, {"round", task.round}, {"metrics", metrics}};
    const std::string model = task.params.at("output_model");
    const auto digest = site.push({directory_of(task, site), model, settings_.store_url_for_sites, *token, meta});
    if (!digest.ok()) return outcome_of(digest.error());
    const auto pushed = catalog_.model_version(model, *digest);
    if (!pushed.ok() && pushed.error().code == ErrorCode::kNotFound)
        return no_good(internal_error("the site says that it pushed " + *digest + ", but the model " + model +
                                      " has no such version"));
    if (!pushed.ok()) return outcome_of(pushed.error());
    if (const Status version = check_version(*pushed, base); !version.ok()) return no_good(version.error());
    return Collected{{{"version", *digest},
                      {"samples", *summary.samples},
                      {"tokens", *summary.tokens},
                      {"metrics", std::move(metrics)}}};
}

Outcome AttemptRunner::finish_preparation(const Task& task, Site& site) {
    auto result = publish_preparation(task, site, catalog_);
    return result.ok() ? Outcome(Collected{std::move(result).value()}) : outcome_of(result.error());
}

Outcome AttemptRunner::clean(const Task& task, Site& site) {
    auto connection = pool_.acquire();
    if (!connection.ok()) return outcome_of(connection.error());
    const auto tasks = tasks_at(**connection, pin_of(task), task.facility);
    if (!tasks.ok()) return outcome_of(tasks.error());
    std::vector<std::string> ids;
    for (const auto& other : *tasks) ids.push_back(other.id);
    const Status status = site.clean(pin_of(task), ids);
    return status.ok() ? Outcome(Collected{Json::object()}) : outcome_of(status.error());
}

}  // namespace atl::dispatch
