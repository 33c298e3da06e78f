#include <algorithm>
#include <functional>
#include <map>

#include "services/dispatch/db/deletion.h"
#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/job_views.h"
#include "services/dispatch/db/jobs.h"
#include "services/dispatch/domain/training_settings.h"
#include "services/dispatch/routes/facility_access.h"
#include "services/dispatch/routes/routes.h"
#include "services/dispatch/work/worker_pool.h"
#include "shared/base/id.h"
#include "shared/base/text.h"
#include "shared/service/routes.h"

namespace atl::dispatch {
namespace {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

using CopyWork = std::function<Status(DatasetCopy&, const std::string& path)>;

// The data of every participant and evaluation, with the field that names it.
Status for_each_copy(JobSpec& spec, const CopyWork& work) {
    for (std::size_t i = 0; i < spec.participants.size(); ++i)
        ATOLL_RETURN_IF_ERROR(work(spec.participants[i].data, "participants[" + std::to_string(i) + "]"));
    for (std::size_t i = 0; i < spec.evaluation_copies.size(); ++i)
        ATOLL_RETURN_IF_ERROR(work(spec.evaluation_copies[i], "evaluation.at[" + std::to_string(i) + "]"));
    return {};
}

using Facilities = std::map<std::string, StoredFacility>;

// Those that the job names, which it may use.
Result<Facilities> require_facilities(pg::Connection& connection, JobSpec& spec, const auth::Principal& principal) {
    std::vector<std::string> names;
    const auto add = [&](DatasetCopy& data, const std::string&) -> Status {
        names.push_back(data.facility);
        return {};
    };
    ATOLL_RETURN_IF_ERROR(for_each_copy(spec, add));
    ATOLL_TRY(auto facilities, find_facilities(connection, names));
    const auto require = [&](DatasetCopy& data, const std::string& path) -> Status {
        const auto found = facilities.find(data.facility);
        if (found == facilities.end()) return require_facility(connection, data.facility, path + ".facility");
        return require_use(found->second.facility, principal, path + ".facility");
    };
    ATOLL_RETURN_IF_ERROR(for_each_copy(spec, require));
    return facilities;
}

// Of a facility that was never checked nothing is known: its trainer will say so itself.
Status require_devices(const JobSpec& spec, const Facilities& facilities) {
    for (std::size_t i = 0; i < spec.participants.size(); ++i) {
        const Participant& one = spec.participants[i];
        const std::string& facility = one.data.facility;
        const Json& devices = facilities.at(facility).devices;
        if (devices.is_null()) continue;
        const std::string device = merge_training_settings(spec.training, one.training).value("device", "cpu");
        const auto built = devices.get<std::vector<std::string>>();
        if (std::find(built.begin(), built.end(), device) != built.end()) continue;
        const bool is_own = one.training.is_object() && one.training.contains("device");
        return invalid_argument(is_own ? "participants[" + std::to_string(i) + "].training.device" : "training.device",
                                "the trainer of facility \"" + facility + "\" has no " + device + "; it has: " +
                                    join(built, ", ") + " (`atoll facility check " + facility + "` looks again)");
    }
    return {};
}

// What a queue never gives would wait in it for ever.
Status require_resources(const JobSpec& spec, const Facilities& facilities) {
    for (std::size_t i = 0; i < spec.participants.size(); ++i) {
        const Participant& one = spec.participants[i];
        ATOLL_RETURN_IF_ERROR(check_resources(one.resources, facilities.at(one.data.facility).facility,
                                              "participants[" + std::to_string(i) + "].resources"));
    }
    return {};
}

// The trainer would say so as well, but only at the site.
Error too_long(const DatasetCopy& data, const std::string& model, std::int64_t tokens_max, const std::string& field) {
    const std::string most = std::to_string(tokens_max);
    return invalid_argument(
        field, "version " + std::to_string(data.version) + " of dataset \"" + data.dataset + "\" has rows of " +
                   std::to_string(data.seq_len) + " tokens; model \"" + model + "\" takes at most " + most +
                   " (max_position_embeddings, or a Mistral's sliding_window): prepare it with a seq_len of at most " +
                   most);
}

// A job writes a model that does not exist yet, or one of its submitter's own.
Status require_output_model(const Catalog& catalog, const std::string& model, const auth::Principal& principal) {
    ATOLL_TRY(const auto owner, catalog.model_owner(model));
    if (!owner) return {};
    if (principal.role != auth::Role::kAdmin && principal.subject != *owner)
        return Error{ErrorCode::kPermissionDenied,
                     "the model " + in_quotes(model) + " belongs to " + (owner->empty() ? "the admins" : *owner) +
                         "; give this job an output_model of its own",
                     "output_model"};
    return catalog.require_no_base(model, "output_model");
}

// The job as it is asked for, checked against the world, with versions and paths filled in. Other services are asked,
// so no connection is held meanwhile.
Result<JobView> resolve(Routing& routing, const Json& body, const auth::Principal& principal) {
    JobView job;
    job.id = new_id();
    ATOLL_TRY(job.spec, parse_job_spec(body));
    {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_TRY(const Facilities facilities, require_facilities(*connection, job.spec, principal));
        ATOLL_RETURN_IF_ERROR(require_resources(job.spec, facilities));
        ATOLL_RETURN_IF_ERROR(require_devices(job.spec, facilities));
    }
    ATOLL_TRY(job.base, routing.catalog.model_digest(job.spec.model, job.spec.model_version, "model", "name"));
    ATOLL_TRY(const auto tokens_max, routing.catalog.row_tokens_max(job.spec.model, job.base));
    std::vector<NamedCopy> copies;
    ATOLL_RETURN_IF_ERROR(for_each_copy(job.spec, [&](DatasetCopy& data, const std::string& path) -> Status {
        copies.push_back({&data, path});
        return {};
    }));
    ATOLL_RETURN_IF_ERROR(routing.catalog.resolve(copies));
    for (const NamedCopy& copy : copies)
        if (tokens_max && copy.data->seq_len > *tokens_max)
            return too_long(*copy.data, job.spec.model, *tokens_max, copy.path + ".dataset");
    ATOLL_RETURN_IF_ERROR(require_output_model(routing.catalog, job.spec.output_model, principal));
    return job;
}

Result<Response> post_job(Routing& routing, const Request& request) {
    JobView job;
    const auto before = [&]() -> Status {
        ATOLL_TRY(const Json body, request.json());
        ATOLL_TRY(job, resolve(routing, body, *request.principal));
        // It is there before the first update comes, so that nobody else makes one of its name meanwhile.
        const std::string& output = job.spec.output_model;
        ATOLL_TRY(const bool is_new, routing.catalog.make_model(output, request.principal->subject));
        return is_new ? Status() : require_output_model(routing.catalog, output, *request.principal);
    };
    const auto insert = [&](pg::Transaction& transaction) -> Result<Response> {
        ATOLL_RETURN_IF_ERROR(
            require_facilities(transaction.connection(), job.spec, *request.principal));  // now they stay
        ATOLL_RETURN_IF_ERROR(claim_output_model(transaction, job.spec.output_model));
        ATOLL_RETURN_IF_ERROR(insert_job(transaction, routing.topics, job, request.principal->subject));
        ATOLL_TRY(const Json view, job_view(transaction.connection(), job.id));
        return Response::json(201, view).with("Location", "/v1/jobs/" + job.id);
    };
    return service::idempotent(routing.pool, request, before, insert);
}

// What its first training at a facility would put into the queue there. The job comes to nothing.
Result<Response> post_script(Routing& routing, const Request& request) {
    const auto asked = request.query.find("facility");
    if (asked == request.query.end() || asked->second.empty()) return invalid_argument("facility", "is required");
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const JobView job, resolve(routing, body, *request.principal));
    for (Task& task : submit_job(job, 0).new_tasks) {
        if (task.kind() != TaskKind::kTrain || task.facility != asked->second) continue;
        task.id = "TASK";
        task.attempt.emplace();
        StoredFacility stored;
        {
            ATOLL_TRY(auto connection, routing.pool.acquire());
            ATOLL_TRY(stored, find_facility(*connection, task.facility));
        }
        ATOLL_TRY(const std::string script,
                  routing.runner.script(task, without_secrets(stored.facility, *request.principal)));
        return Response::text(200, script);
    }
    return invalid_argument("facility", "the job has no participant " + in_quotes(asked->second));
}

Status cancel(Routing& routing, pg::Transaction& transaction, const Request& request) {
    const std::string id = request.param("id");
    const auto job = lock_job(transaction, id);
    if (!job.ok() && job.error().code == ErrorCode::kInternal)
        return fail_unreadable_job(transaction, routing.topics, id, describe(job.error()));
    ATOLL_RETURN_IF_ERROR(job);
    if (job->state == JobState::kCancelled) return {};
    if (is_finished(job->state))
        return conflict(std::string("the job is ") + to_string(job->state) + " already", "state");
    return apply_decision(transaction, routing.topics, *job, cancel_job(*job));
}

Status pause(Routing&, pg::Transaction& transaction, const Request& request) {
    return set_paused(transaction, request.param("id"), true);
}

Result<ResumeOrder> parse_resume_order(const Request& request) {
    ResumeOrder order;
    if (request.body.empty()) return order;
    ATOLL_TRY(const Json body, request.json());
    json::ObjectReader reader(body);
    order.accepts = reader.boolean_or("accept", false);
    const Json& without = reader.array_or_null("without");
    if (const std::int64_t round = reader.integer_or("from_round", -1, 0, 1'000'000); round >= 0)
        order.from_round = round;
    ATOLL_RETURN_IF_ERROR(reader.finish());
    for (const Json& facility : without) {
        if (!facility.is_string()) return invalid_argument("without", "must be a list of facilities");
        order.without.push_back(facility.get<std::string>());
    }
    return order;
}

Status resume(Routing& routing, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const ResumeOrder order, parse_resume_order(request));
    return resume_job(transaction, routing.topics, request.param("id"), order);
}

// A job is changed by who submitted it, or by an admin.
Status require_owner(pg::Connection& connection, const Request& request) {
    ATOLL_TRY(const std::string owner, job_owner(connection, request.param("id")));
    return service::require_owner(request, owner, "the job");
}

// A change of a job's state; safe to repeat.
template <Status (*change)(Routing&, pg::Transaction&, const Request&)>
Result<Response> change_job(Routing& routing, const Request& request) {
    return service::in_transaction(routing.pool, [&](pg::Transaction& transaction) -> Result<Response> {
        ATOLL_RETURN_IF_ERROR(require_owner(transaction.connection(), request));
        ATOLL_RETURN_IF_ERROR(change(routing, transaction, request));
        ATOLL_TRY(const Json view, job_view(transaction.connection(), request.param("id")));
        return Response::json(200, view);
    });
}

Status readmit(Routing& routing, pg::Transaction& transaction, const Request& request) {
    return readmit_participant(transaction, routing.topics, request.param("id"), request.param("facility"));
}

// A transaction of its own for each step: see delete_job().
Result<Response> remove_job(Routing& routing, const Request& request) {
    {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_RETURN_IF_ERROR(require_owner(*connection, request));
    }
    ATOLL_TRY(Json left, delete_job(routing.pool, request.param("id")));
    return Response::json(200, {{"left", std::move(left)}});
}

struct PruneOrder {
    bool dry_run = false;
    Keep keep;
};

Result<PruneOrder> parse_prune_order(const Json& body, const Keep& usual) {
    json::ObjectReader reader(body);
    PruneOrder order;
    order.dry_run = reader.boolean_or("dry_run", false);
    order.keep.events_days = reader.integer_or("keep_events_days", usual.events_days, 0, kKeepDaysMax);
    order.keep.jobs_days = reader.integer_or("keep_jobs_days", usual.jobs_days, 1, kKeepDaysMax);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return order;
}

Result<Response> post_prune(Routing& routing, const Request& request) {
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const PruneOrder order, parse_prune_order(body, routing.keep));
    Json pruned;
    {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_TRY(pruned, prunable_history(*connection, order.keep));
    }
    if (!order.dry_run)
        ATOLL_RETURN_IF_ERROR(prune_history(routing.pool, order.keep, {}, [](const std::string&, std::int64_t) {}));
    pruned["dry_run"] = order.dry_run;
    return Response::json(200, pruned);
}

}  // namespace

void add_job_routes(http::Server& server, Routing& routing) {
    const service::Routes routes("dispatch", server, routing);
    routes.add(Method::kPost, "/v1/jobs", post_job);
    routes.add(Method::kPost, "/v1/scripts", post_script);
    routes.add(Method::kDelete, "/v1/jobs/:id", remove_job);
    routes.add(Method::kPost, "/v1/prune", post_prune);
    routes.add(Method::kPost, "/v1/jobs/:id/cancel", change_job<cancel>);
    routes.add(Method::kPost, "/v1/jobs/:id/pause", change_job<pause>);
    routes.add(Method::kPost, "/v1/jobs/:id/resume", change_job<resume>);
    routes.add(Method::kPost, "/v1/jobs/:id/participants/:facility/readmit", change_job<readmit>);
}

}  // namespace atl::dispatch
