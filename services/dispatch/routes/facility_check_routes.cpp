#include <algorithm>
#include <chrono>

#include "services/dispatch/admission/facility_access.h"
#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/sql.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/domain/check_job.h"
#include "services/dispatch/routes/routes.h"
#include "services/dispatch/work/check_jobs.h"
#include "shared/json/printable.h"
#include "shared/service/names.h"

namespace atl::dispatch {
namespace {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

// What is found out of a facility is kept with it, and what waits there is tried at once where it answers.
Status record_found(Routing& routing, const StoredFacility& stored, const SiteCheck& found, std::int64_t asked_ms) {
    if (found.host.empty()) return {};
    ATOLL_TRY(auto connection, routing.pool.acquire());
    ATOLL_RETURN_IF_ERROR(try_again(*connection, stored.facility.name));
    if (found.has_work_dir) ATOLL_RETURN_IF_ERROR(record_work_dir(*connection, stored.facility.name));
    if (found.no_batch_answer)
        ATOLL_RETURN_IF_ERROR(found.no_batch_answer->empty()
                                  ? record_batch_answer(*connection, stored.facility.name, asked_ms)
                                  : record_batch_silence(*connection, stored.facility.name, *found.no_batch_answer));
    if (found.devices) ATOLL_RETURN_IF_ERROR(record_devices(*connection, stored, *found.devices));
    if (found.has_looked_at_queues) ATOLL_RETURN_IF_ERROR(record_limits(*connection, stored, found.limits));
    return {};
}

Result<std::int64_t> read_now_ms(Routing& routing) {
    ATOLL_TRY(auto connection, routing.pool.acquire());
    return database_now_ms(*connection);
}

Result<bool> has_unfinished_tasks(Routing& routing, const std::string& facility) {
    ATOLL_TRY(auto connection, routing.pool.acquire());
    return has_tasks_at(*connection, facility);
}

Result<std::optional<CheckRow>> look_for_leftovers(Routing& routing, const Facility& facility, const SiteCheck& found) {
    ATOLL_TRY(auto connection, routing.pool.acquire());
    Leftovers leftovers;
    ATOLL_TRY(leftovers.tasks, unknown_tasks(*connection, found.tasks));
    ATOLL_TRY(leftovers.kept, jobs_without_use(*connection, facility.name, found.kept));
    return judge_leftovers(facility, leftovers);
}

Json rows_view(const std::vector<CheckRow>& rows) {
    Json view = Json::array();
    for (const CheckRow& row : rows) view.push_back(to_json(row));
    return view;
}

bool has_no_failure(const std::vector<CheckRow>& rows) {
    return std::none_of(rows.begin(), rows.end(), [](const auto& row) { return row.state == CheckState::kFail; });
}

// What its tasks have waited for until now: where the look found nothing wrong they are tried again.
std::vector<CheckRow> with_wait(const StoredFacility& stored, bool has_tasks, std::vector<CheckRow> rows) {
    if (!stored.waiting || !has_tasks) return rows;
    const bool goes_on = has_no_failure(rows);
    rows.push_back({"tasks", CheckState::kWarn,
                    "they wait since " + utc_text(stored.waiting->since_ms) + ": " + stored.waiting->reason,
                    goes_on ? "nothing: they are tried again now"
                            : "fix the failures above; the tasks then continue on their own"});
    return rows;
}

// Looks at all that a job there needs and that its login node can tell. No database connection is held meanwhile.
Result<Response> check_facility(Routing& routing, const Request& request) {
    ATOLL_TRY(const StoredFacility stored, find_named_facility(routing, request));
    ATOLL_RETURN_IF_ERROR(require_use(stored.facility, *request.principal, "name"));
    ATOLL_TRY(const auto place, routing.site_requests.take_place(request.principal->subject, stored.facility.name));
    ATOLL_TRY(const std::int64_t now_ms, read_now_ms(routing));
    const auto begin = std::chrono::steady_clock::now();
    SiteCheck found = routing.connections.check(stored.facility, now_ms);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ATOLL_RETURN_IF_ERROR(record_found(routing, stored, found, now_ms));
    ATOLL_TRY(const auto leftovers, look_for_leftovers(routing, stored.facility, found));
    if (leftovers) found.rows.push_back(*leftovers);
    ATOLL_TRY(const bool has_tasks, has_unfinished_tasks(routing, stored.facility.name));
    return Response::json(200, {{"ok", has_no_failure(found.rows)},
                                {"host", found.host},
                                {"seconds", seconds},
                                {"checks", rows_view(with_wait(stored, has_tasks, found.rows))}});
}

Result<std::string> job_id(const Request& request) {
    const std::string id = request.param("id");
    const bool is_plain = std::all_of(id.begin(), id.end(),
                                      [](unsigned char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); });
    if (id.size() < 8 || id.size() > 32 || !is_plain)
        return invalid_argument("id", "must be 8 to 32 small letters and digits");
    return id;
}

struct Asked {
    Facility facility;
    CheckJob job;
    SiteRequests::Place place;
};

Result<Asked> read_asked(Routing& routing, const Request& request) {
    ATOLL_TRY(const StoredFacility stored, find_named_facility(routing, request));
    ATOLL_RETURN_IF_ERROR(require_use(stored.facility, *request.principal, "name"));
    ATOLL_TRY(const std::string id, job_id(request));
    ATOLL_TRY(auto place, routing.site_requests.take_place(request.principal->subject, stored.facility.name));
    return Asked{stored.facility, {id}, std::move(place)};
}

// A job belongs to whoever asked for it: another one whom the facility allows neither sees nor ends it.
Status require_own_job(const Asked& asked, const auth::Principal& principal, const std::string& owner) {
    if (owner == principal.subject || may_change(asked.facility, principal)) return {};
    return Error{ErrorCode::kPermissionDenied,
                 "only " + owner + ", who asked for this job of a check, the facility's owner or an admin may do this",
                 "id"};
}

Result<Asked> read_own(Routing& routing, const Request& request) {
    ATOLL_TRY(Asked asked, read_asked(routing, request));
    ATOLL_TRY(auto connection, routing.pool.acquire());
    ATOLL_TRY(const std::string owner, find_check_job_owner(*connection, asked.facility.name, asked.job.id));
    ATOLL_RETURN_IF_ERROR(require_own_job(asked, *request.principal, owner));
    return asked;
}

// Puts a short job into the facility's queue, once; what it found is asked for by GET.
Result<Response> put_check_job(Routing& routing, const Request& request) {
    ATOLL_TRY(Asked asked, read_asked(routing, request));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(asked.job.resources, parse_check_job(body, asked.facility));
    {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
        ATOLL_TRY(const std::string owner,
                  claim_check_job(transaction, asked.facility.name, asked.job.id, request.principal->subject));
        ATOLL_RETURN_IF_ERROR(require_own_job(asked, *request.principal, owner));
        ATOLL_RETURN_IF_ERROR(transaction.commit());
    }
    const auto batch_id = submit_check(*routing.connections.site(asked.facility), asked.job);
    if (!batch_id.ok() && !is_transient(batch_id.error().code)) {  // it was refused: there is none to be removed
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_RETURN_IF_ERROR(forget_check_job(*connection, asked.facility.name, asked.job.id));
    }
    ATOLL_RETURN_IF_ERROR(batch_id);
    return Response::json(200, {{"id", asked.job.id}, {"batch_id", *batch_id}});
}

Result<Response> get_check_job(Routing& routing, const Request& request) {
    ATOLL_TRY(const Asked asked, read_own(routing, request));
    ATOLL_TRY(const CheckJobSeen seen, look_at_check(*routing.connections.site(asked.facility), asked.job));
    return Response::json(200, {{"id", asked.job.id},
                                {"state", seen.state},
                                {"reason", seen.reason},
                                {"ok", has_no_failure(seen.rows)},
                                {"checks", rows_view(seen.rows)}});
}

Result<Response> delete_check_job(Routing& routing, const Request& request) {
    ATOLL_TRY(const Asked asked, read_own(routing, request));
    ATOLL_RETURN_IF_ERROR(drop_check(*routing.connections.site(asked.facility), asked.job));
    ATOLL_TRY(auto connection, routing.pool.acquire());
    ATOLL_RETURN_IF_ERROR(forget_check_job(*connection, asked.facility.name, asked.job.id));
    return Response::empty(204);
}

}  // namespace

Result<StoredFacility> find_named_facility(Routing& routing, const Request& request) {
    ATOLL_TRY(auto connection, routing.pool.acquire());
    return find_facility(*connection, request.param("name"));
}

void add_facility_check_routes(http::Server& server, Routing& routing) {
    add_site_route(server, routing, Method::kPost, "/v1/facilities/:name/check", check_facility);
    add_site_route(server, routing, Method::kPut, "/v1/facilities/:name/check-jobs/:id", put_check_job);
    add_site_route(server, routing, Method::kGet, "/v1/facilities/:name/check-jobs/:id", get_check_job);
    add_site_route(server, routing, Method::kDelete, "/v1/facilities/:name/check-jobs/:id", delete_check_job);
}

}  // namespace atl::dispatch
