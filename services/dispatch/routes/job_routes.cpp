#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/job_views.h"
#include "services/dispatch/db/jobs.h"
#include "services/dispatch/routes/routes.h"
#include "services/dispatch/work/worker_pool.h"
#include "shared/base/id.h"
#include "shared/service/idempotency.h"

namespace atl::dispatch {
namespace {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

// Checks the data of one participant or evaluation site against the world and fills in version and path.
Status resolve_site(Routing& routing, pg::Connection& connection, SiteData& data, const std::string& path) {
    ATOLL_RETURN_IF_ERROR(require_facility(connection, data.facility, path + ".facility"));
    return routing.catalog.resolve(data, path);
}

Result<JobView> resolve(Routing& routing, pg::Connection& connection, const Json& body) {
    JobView job;
    job.id = new_id();
    ATOLL_TRY(job.spec, parse_job_spec(body));
    JobSpec& spec = job.spec;
    for (std::size_t i = 0; i < spec.participants.size(); ++i)
        ATOLL_RETURN_IF_ERROR(
            resolve_site(routing, connection, spec.participants[i].data, "participants[" + std::to_string(i) + "]"));
    for (std::size_t i = 0; i < spec.evaluation_sites.size(); ++i)
        ATOLL_RETURN_IF_ERROR(
            resolve_site(routing, connection, spec.evaluation_sites[i], "evaluation.at[" + std::to_string(i) + "]"));
    ATOLL_TRY(job.base, routing.catalog.model_digest(spec.model, spec.model_version, "model", "name"));
    return job;
}

Response post_job(Routing& routing, const Request& request) {
    Response response =
        service::answer_once(routing.pool, request, [&](pg::Transaction& transaction) -> Result<Response> {
            ATOLL_TRY(const Json body, request.json());
            ATOLL_TRY(const JobView job, resolve(routing, transaction.connection(), body));
            ATOLL_RETURN_IF_ERROR(routing.catalog.ensure_model(job.spec.output_model, "job-" + job.id));
            ATOLL_RETURN_IF_ERROR(
                insert_job(transaction, routing.topics, job, request.principal->subject, unix_now_ms()));
            ATOLL_TRY(const Json view, job_view(transaction.connection(), job.id));
            return Response::json(201, view).with("Location", "/v1/jobs/" + job.id);
        });
    routing.poke();
    return response;
}

Status cancel(Routing& routing, pg::Transaction& transaction, const std::string& id) {
    ATOLL_TRY(const JobView job, lock_job(transaction, id));
    if (job.state == JobState::kCancelled) return {};
    if (is_finished(job.state))
        return conflict(std::string("the job is ") + to_string(job.state) + " already", "state");
    return apply_decision(transaction, routing.topics, job, cancel_job(job));
}

Status pause(Routing&, pg::Transaction& transaction, const std::string& id) {
    return set_paused(transaction, id, true);
}

Status resume(Routing&, pg::Transaction& transaction, const std::string& id) {
    return set_paused(transaction, id, false);
}

// A change of a job's state; safe to repeat.
http::Handler changing(Routing& routing, Status (*change)(Routing&, pg::Transaction&, const std::string&)) {
    return [&routing, change](const Request& request) {
        Response response =
            service::answer(routing.pool, request, [&](pg::Transaction& transaction) -> Result<Response> {
                ATOLL_RETURN_IF_ERROR(change(routing, transaction, request.param("id")));
                ATOLL_TRY(const Json view, job_view(transaction.connection(), request.param("id")));
                return Response::json(200, view);
            });
        routing.poke();
        return response;
    };
}

}  // namespace

void add_job_routes(http::Server& server, Routing& routing) {
    server.route(Method::kPost, "/v1/jobs", writers(),
                 [&routing](const Request& request) { return post_job(routing, request); });
    server.route(Method::kPost, "/v1/jobs/:id/cancel", writers(), changing(routing, cancel));
    server.route(Method::kPost, "/v1/jobs/:id/pause", writers(), changing(routing, pause));
    server.route(Method::kPost, "/v1/jobs/:id/resume", writers(), changing(routing, resume));
}

}  // namespace atl::dispatch
