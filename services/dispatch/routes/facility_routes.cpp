#include <unistd.h>

#include "services/dispatch/db/deletion.h"
#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/routes/routes.h"
#include "shared/base/text.h"
#include "shared/service/names.h"
#include "shared/service/routes.h"

namespace atl::dispatch {
namespace {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

// Values of variables can be secrets: they are for those who may set them.
Json view(const StoredFacility& stored, const Request& request) {
    Json value = to_json(stored.facility);
    const auth::Role role = request.principal->role;
    if (role != auth::Role::kAdmin && role != auth::Role::kOperator)
        for (auto& variable : value["environment"]) variable = nullptr;
    value["devices"] = stored.devices;
    value["silent_since"] = stored.silent_since.empty() ? Json() : Json(stored.silent_since);
    value["created_at"] = stored.created_at;
    value["updated_at"] = stored.updated_at;
    return value;
}

Response answer_one(int status, const StoredFacility& stored, const Request& request) {
    return Response::json(status, view(stored, request)).with("ETag", service::make_etag(stored.version));
}

// A local facility's programs are on our own machine, where a wrong directory is seen at once. At a remote site a look
// can take a minute or be impossible just now: that is for the facility's check.
Status require_local_programs(const Facility& facility) {
    if (facility.transport.kind != "local" || facility.programs.empty()) return {};
    for (const char* name : {"atoll", "atoll-trainer"})
        if (::access((facility.programs + "/" + name).c_str(), X_OK) != 0)
            return invalid_argument("programs", "there is no " + std::string(name) + " in " + facility.programs +
                                                    " on this machine, or it cannot be run");
    return {};
}

Result<Response> post_facility(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const Facility facility, parse_facility(body));
    ATOLL_RETURN_IF_ERROR(service::check_name(facility.name, "name"));  // as the registry does
    ATOLL_RETURN_IF_ERROR(check_launcher(facility));
    ATOLL_RETURN_IF_ERROR(require_local_programs(facility));
    ATOLL_RETURN_IF_ERROR(require_own_place(transaction, facility));
    ATOLL_RETURN_IF_ERROR(insert_facility(transaction, facility));
    ATOLL_TRY(const StoredFacility stored, find_facility(transaction.connection(), facility.name));
    return answer_one(201, stored, request).with("Location", "/v1/facilities/" + facility.name);
}

Result<Response> get_facilities(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    ATOLL_TRY(const auto stored, list_facilities(transaction.connection(), page.after, page.limit + 1));
    std::vector<Json> items;
    for (const auto& item : stored) items.push_back(view(item, request));
    return service::list(std::move(items), page, "name");
}

Result<Response> get_facility(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const StoredFacility stored, find_facility(transaction.connection(), request.param("name")));
    return answer_one(200, stored, request);
}

// ?give_up_tasks=true
Result<bool> gives_up_tasks(const Request& request) {
    const auto found = request.query.find("give_up_tasks");
    if (found == request.query.end() || found->second == "false") return false;
    if (found->second == "true") return true;
    return invalid_argument("give_up_tasks", "must be true or false");
}

Result<Response> patch_facility(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const StoredFacility stored, find_facility(transaction.connection(), request.param("name")));
    ATOLL_RETURN_IF_ERROR(service::check_if_match(request, stored.version));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const Facility patched, patch_facility(stored.facility, body));
    const bool same_programs = patched.programs == stored.facility.programs;
    if (!same_programs || patched.transport != stored.facility.transport)
        ATOLL_RETURN_IF_ERROR(require_local_programs(patched));
    if (patched.transport != stored.facility.transport || patched.work_dir != stored.facility.work_dir)
        ATOLL_RETURN_IF_ERROR(require_own_place(transaction, patched));
    ATOLL_TRY(const bool gives_up, gives_up_tasks(request));
    if (gives_up) ATOLL_RETURN_IF_ERROR(abandon_tasks(transaction, patched.name, request.principal->subject));
    const std::string moved = moved_member(stored.facility, patched);
    if (!moved.empty()) ATOLL_RETURN_IF_ERROR(require_idle(transaction, patched.name, moved));
    ATOLL_RETURN_IF_ERROR(update_facility(transaction.connection(), stored, patched));
    ATOLL_TRY(const StoredFacility now, find_facility(transaction.connection(), patched.name));
    return answer_one(200, now, request);
}

Result<Response> remove_facility(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_RETURN_IF_ERROR(delete_facility(transaction, request.param("name")));
    return Response::empty(204);
}

// Tries the transport and what is needed behind it. No database connection is held meanwhile.
Result<Response> check_facility(Routing& routing, const Request& request) {
    StoredFacility stored;
    {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_TRY(stored, find_facility(*connection, request.param("name")));
    }
    const auto found = routing.runner.check_facility(stored.facility);
    Json checks = Json::array();
    checks.push_back({{"name", "transport"},
                      {"ok", found.ok()},
                      {"detail", found.ok() ? "the transport \"" + stored.facility.transport.kind + "\" works"
                                            : describe(found.error())}});
    bool all_ok = found.ok();
    if (found.ok())
        for (const auto& item : *found) {
            checks.push_back({{"name", item.name}, {"ok", item.ok}, {"detail", item.detail}});
            all_ok = all_ok && item.ok;
            if (item.name != "devices") continue;
            ATOLL_TRY(auto connection, routing.pool.acquire());
            ATOLL_RETURN_IF_ERROR(record_devices(*connection, stored, split_list(item.detail)));
        }
    return Response::json(200, {{"ok", all_ok}, {"checks", std::move(checks)}});
}

}  // namespace

void add_facility_routes(http::Server& server, Routing& routing) {
    const service::Routes routes(server, routing);
    routes.add(Method::kPost, "/v1/facilities", service::admins(), post_facility);
    routes.add(Method::kGet, "/v1/facilities", service::readers(), get_facilities);
    routes.add(Method::kGet, "/v1/facilities/:name", service::readers(), get_facility);
    routes.add(Method::kPatch, "/v1/facilities/:name", service::admins(), patch_facility);
    routes.add(Method::kDelete, "/v1/facilities/:name", service::admins(), remove_facility);
    routes.add(Method::kPost, "/v1/facilities/:name/check", service::writers(), check_facility);
}

}  // namespace atl::dispatch
