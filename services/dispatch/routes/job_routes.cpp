#include <algorithm>

#include "services/dispatch/admission/facility_access.h"
#include "services/dispatch/admission/job_adapter.h"
#include "services/dispatch/admission/job_admission.h"
#include "services/dispatch/admission/job_quota.h"
#include "services/dispatch/db/deletion.h"
#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/job_orders.h"
#include "services/dispatch/db/job_views.h"
#include "services/dispatch/db/jobs.h"
#include "services/dispatch/routes/routes.h"
#include "services/dispatch/work/batch_job.h"
#include "services/dispatch/work/worker_pool.h"
#include "shared/base/text.h"
#include "shared/service/routes.h"

namespace atl::dispatch {
namespace {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

// Asked before anything is made for a job, and again in the transaction that makes it.
Status require_free_model(pg::Pool& pool, const std::string& model) {
    ATOLL_TRY(auto connection, pool.acquire());
    return require_unwritten(*connection, model);
}

// What the job begins with stays in the store until its sites have fetched it.
Status hold_models(const Catalog& catalog, const JobView& job) {
    for (const std::string& version : {job.spec.adapter_of, job.base}) {
        if (version.empty()) continue;
        ATOLL_TRY(const bool is_held, catalog.hold_version(version));
        if (!is_held) return invalid_argument("model.version", "version " + version + " was just removed");
    }
    return {};
}

Result<Response> post_job(Routing& routing, const Request& request) {
    Admission admission;
    JobView& job = admission.job;
    const auto before = [&]() -> Status {
        ATOLL_TRY(const auto place, routing.site_requests.take_examination(request.principal->subject));
        ATOLL_TRY(const Json body, request.json());
        ATOLL_RETURN_IF_ERROR(require_room_for_job(routing.pool, *request.principal, routing.operator_active_max));
        ATOLL_TRY(admission, admit_job(routing.pool, routing.catalog, body, *request.principal));
        ATOLL_RETURN_IF_ERROR(require_free_model(routing.pool, job.spec.output_model));
        // It is there before the first update comes, so that nobody else makes one of its name meanwhile.
        const std::string& output = job.spec.output_model;
        ATOLL_TRY(const bool is_new, routing.catalog.make_model(output, request.principal->subject));
        job.spec.output_owner = request.principal->subject;
        if (!is_new) {
            ATOLL_TRY(job.spec.output_owner, require_output_model(routing.catalog, output, *request.principal));
            if (!job.spec.output_owner) return unavailable("the model " + output + " was just removed; submit again");
        }
        ATOLL_RETURN_IF_ERROR(make_start_adapter(routing.catalog, job));
        return hold_models(routing.catalog, job);  // the last: what is refused keeps nothing from being removed
    };
    const auto insert = [&](pg::Transaction& transaction) -> Result<Response> {
        ATOLL_RETURN_IF_ERROR(
            require_facilities(transaction.connection(), job.spec, *request.principal));  // now they stay
        ATOLL_RETURN_IF_ERROR(require_room_for_job(transaction, *request.principal, routing.operator_active_max));
        ATOLL_RETURN_IF_ERROR(claim_output_model(transaction, job.spec.output_model));
        ATOLL_RETURN_IF_ERROR(insert_job(transaction, routing.topics, job, request.principal->subject,
                                         request.principal->role == auth::Role::kAdmin));
        ATOLL_TRY(Json view, job_view(transaction.connection(), job.id));
        for (const Finding& finding : admission.examination.findings)
            if (finding.row.state == CheckState::kWarn)
                view["warnings"].push_back(finding.facility + ": " + finding.row.seen);
        return Response::json(201, view).with("Location", "/v1/jobs/" + job.id);
    };
    return service::idempotent(routing.pool, request, before, insert);
}

// As an integer: numbers beyond its range are that many.
std::int64_t whole(double bytes) {
    return static_cast<std::int64_t>(std::min(bytes, 9e18));
}

// What would become of the job; nothing is kept of it.
Result<Response> post_job_check(Routing& routing, const Request& request) {
    ATOLL_TRY(const auto place, routing.site_requests.take_examination(request.principal->subject));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(Admission admission, consider_job(routing.pool, routing.catalog, body, *request.principal));
    if (const Status is_free = require_free_model(routing.pool, admission.job.spec.output_model); !is_free.ok()) {
        if (is_free.error().code != ErrorCode::kConflict) return is_free.error();
        admission.examination.findings.push_back(
            {"output_model", "", {"model", CheckState::kFail, is_free.error().message, ""}, is_free.error().field});
    }
    Json findings = Json::array();
    for (const Finding& finding : admission.examination.findings) findings.push_back(to_json(finding));
    const Travel& travel = admission.examination.travel;
    return Response::json(200, {{"ok", first_failure(admission.examination).ok()},
                                {"findings", std::move(findings)},
                                {"to_facilities_bytes", whole(travel.to_facilities_bytes)},
                                {"from_facilities_bytes", whole(travel.from_facilities_bytes)}});
}

// What its first training at a facility would put into the queue there. The job comes to nothing.
Result<Response> post_script(Routing& routing, const Request& request) {
    const auto asked = request.query.find("facility");
    if (asked == request.query.end() || asked->second.empty()) return invalid_argument("facility", "is required");
    ATOLL_TRY(const auto place, routing.site_requests.take_examination(request.principal->subject));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(Admission admission, admit_job(routing.pool, routing.catalog, body, *request.principal));
    JobView& job = admission.job;
    if (job.base == job.spec.adapter_of) job.base = "ADAPTER";  // made when the job is submitted
    for (Task& task : submit_job(job, 0).new_tasks) {
        if (task.kind() != TaskKind::kTrain || task.facility != asked->second) continue;
        task.id = "TASK";
        task.job = "JOB";
        task.attempt.emplace();
        StoredFacility stored;
        {
            ATOLL_TRY(auto connection, routing.pool.acquire());
            ATOLL_TRY(stored, find_facility(*connection, task.facility));
        }
        ATOLL_TRY(
            const std::string script,
            render_batch_script(task, *routing.connections.site(without_secrets(stored.facility, *request.principal))));
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
        order.without.insert(facility.get<std::string>());
    }
    return order;
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

// What the job needs may have been removed while it stood still. Other services are asked, so no connection is held
// meanwhile.
Status require_resumable(Routing& routing, const Request& request, const ResumeOrder& order) {
    std::optional<StoppedJob> job;
    {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_TRY(job, find_stopped_job(*connection, request.param("id"), order.from_round));
    }
    if (!job) return {};
    if (job->output_owner)
        ATOLL_RETURN_IF_ERROR(routing.catalog.require_model_of(job->output_model, *job->output_owner));
    for (const std::string& version : job->versions) {
        ATOLL_TRY(const bool is_held, routing.catalog.hold_version(version));
        if (!is_held)
            return conflict("the job cannot go on: version " + version + ", which it goes on from, was removed",
                            "state");
    }
    return {};
}

Status resume(Routing& routing, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const ResumeOrder order, parse_resume_order(request));
    ATOLL_RETURN_IF_ERROR(
        require_room(transaction, *request.principal, routing.operator_active_max, request.param("id")));
    return resume_job(transaction, routing.topics, request.param("id"), order);
}

// Whether it would be refused. Nothing of it stays.
Status try_resume(Routing& routing, const Request& request) {
    ATOLL_TRY(pg::Pool::Lease connection, routing.pool.acquire());
    ATOLL_TRY(pg::Transaction transaction, pg::Transaction::begin(*connection));
    ATOLL_RETURN_IF_ERROR(require_owner(transaction.connection(), request));
    return resume(routing, transaction, request);
}

Result<Response> post_resume(Routing& routing, const Request& request) {
    ATOLL_TRY(const ResumeOrder order, parse_resume_order(request));
    ATOLL_RETURN_IF_ERROR(try_resume(routing, request));  // what is refused keeps no version from being removed
    ATOLL_RETURN_IF_ERROR(require_resumable(routing, request, order));
    return change_job<resume>(routing, request);
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
    routes.add(Method::kPost, "/v1/job-checks", post_job_check);
    routes.add(Method::kPost, "/v1/scripts", post_script);
    routes.add(Method::kDelete, "/v1/jobs/:id", remove_job);
    routes.add(Method::kPost, "/v1/prune", post_prune);
    routes.add(Method::kPost, "/v1/jobs/:id/cancel", change_job<cancel>);
    routes.add(Method::kPost, "/v1/jobs/:id/pause", change_job<pause>);
    routes.add(Method::kPost, "/v1/jobs/:id/resume", post_resume);
    routes.add(Method::kPost, "/v1/jobs/:id/participants/:facility/readmit", change_job<readmit>);
}

}  // namespace atl::dispatch
