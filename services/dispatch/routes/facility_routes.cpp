#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "services/dispatch/admission/facility_access.h"
#include "services/dispatch/db/allowed_names.h"
#include "services/dispatch/db/deletion.h"
#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/domain/batch_template.h"
#include "services/dispatch/domain/host_key.h"
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
    if (!may_change(stored.facility, *request.principal))
        for (auto& variable : value["environment"]) variable = nullptr;
    value["devices"] = stored.devices;
    value["host_key_fingerprints"] = fingerprints(stored.facility.transport.host_key);
    value["limits"] = stored.limits;
    value["template_replaces"] = replaced_lines(stored.facility.batch.script_template);
    value["waiting"] = waiting_view(stored.waiting);
    value["task_waits"] = stored.task_waits;
    value["silent_since"] = stored.is_silent ? Json(utc_text(stored.waiting->since_ms)) : Json();
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
    if (facility.transport.kind != TransportKind::kLocal || facility.programs.empty()) return {};
    for (const char* name : {"atoll", "atoll-trainer"})
        if (::access((facility.programs + "/" + name).c_str(), X_OK) != 0)
            return invalid_argument("programs", "there is no " + std::string(name) + " in " + facility.programs +
                                                    " on this machine, or it cannot be run");
    return {};
}

Result<Response> post_facility(Routing& routing, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(Facility facility, parse_facility(body));
    ATOLL_RETURN_IF_ERROR(service::check_name(facility.name, "name"));  // as the registry does
    if (facility.owner.empty()) facility.owner = request.principal->subject;
    ATOLL_RETURN_IF_ERROR(check_launcher(facility));
    ATOLL_RETURN_IF_ERROR(require_local_programs(facility));
    ATOLL_RETURN_IF_ERROR(routing.connections.require_way_to_store(facility));
    ATOLL_RETURN_IF_ERROR(require_own_place(transaction, facility));
    ATOLL_RETURN_IF_ERROR(require_no_job_allowed(transaction, Facility(), facility));
    ATOLL_RETURN_IF_ERROR(insert_facility(transaction, facility));
    ATOLL_TRY(const StoredFacility stored, find_facility(transaction.connection(), facility.name));
    return answer_one(201, stored, request).with("Location", "/v1/facilities/" + facility.name);
}

Result<Response> get_facilities(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    return service::list(page, {"name"}, [&](const http::Page& piece) -> Result<std::vector<Json>> {
        ATOLL_TRY(const auto stored, list_facilities(transaction.connection(), piece.after, piece.limit + 1));
        std::vector<Json> items;
        for (const auto& item : stored) items.push_back(view(item, request));
        return items;
    });
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

Result<Response> patch_facility(Routing& routing, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const StoredFacility stored, find_facility(transaction.connection(), request.param("name")));
    ATOLL_RETURN_IF_ERROR(require_change(stored.facility, stored.facility, *request.principal));
    ATOLL_RETURN_IF_ERROR(service::check_if_match(request, stored.version));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const Facility patched, patch_facility(stored.facility, body));
    ATOLL_RETURN_IF_ERROR(require_change(stored.facility, patched, *request.principal));
    ATOLL_RETURN_IF_ERROR(require_host_key_change(stored, patched, *request.principal));
    ATOLL_RETURN_IF_ERROR(require_no_job_allowed(transaction, stored.facility, patched));
    const bool same_programs = patched.programs == stored.facility.programs;
    if (!same_programs || patched.transport != stored.facility.transport)
        ATOLL_RETURN_IF_ERROR(require_local_programs(patched));
    if (routing.connections.require_way_to_store(stored.facility).ok())
        ATOLL_RETURN_IF_ERROR(routing.connections.require_way_to_store(patched));
    if (patched.transport != stored.facility.transport || patched.work_dir != stored.facility.work_dir)
        ATOLL_RETURN_IF_ERROR(require_own_place(transaction, patched));
    ATOLL_TRY(const bool gives_up, gives_up_tasks(request));
    if (gives_up) ATOLL_RETURN_IF_ERROR(abandon_tasks(transaction, patched.name, request.principal->subject));
    const std::string moved = moved_member(stored.facility, patched);
    if (!moved.empty()) ATOLL_RETURN_IF_ERROR(require_idle(transaction, patched.name, moved));
    const bool is_admin = request.principal->role == auth::Role::kAdmin;
    ATOLL_RETURN_IF_ERROR(update_facility(transaction.connection(), stored, patched, is_admin));
    ATOLL_TRY(const StoredFacility now, find_facility(transaction.connection(), patched.name));
    return answer_one(200, now, request);
}

Result<Response> remove_facility(Routing& routing, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const StoredFacility stored, find_facility(transaction.connection(), request.param("name")));
    ATOLL_RETURN_IF_ERROR(require_remove(stored.facility, *request.principal));
    ATOLL_RETURN_IF_ERROR(delete_facility(transaction, request.param("name")));
    routing.connections.disconnect(request.param("name"));
    return Response::empty(204);
}

// Connects from here, as a login would, and stores nothing. No database connection is held meanwhile.
Result<Response> post_host_key(Routing& routing, const Request& request) {
    ATOLL_TRY(const StoredFacility stored, find_named_facility(routing, request));
    ATOLL_RETURN_IF_ERROR(require_change(stored.facility, stored.facility, *request.principal));
    ATOLL_TRY(const auto place, routing.site_requests.take_place(request.principal->subject, stored.facility.name));
    ATOLL_TRY(const std::string shown, routing.connections.show_host_key(stored.facility));
    ATOLL_TRY(const std::string key, parse_host_key(shown, ""));
    const std::string typed = fingerprints(key).at(0);
    return Response::json(200, {{"host_key", key}, {"fingerprint", typed.substr(typed.rfind(' ') + 1)}});
}

// What a person runs here to log in with a second factor.
Result<Response> post_login(Routing& routing, const Request& request) {
    ATOLL_TRY(const StoredFacility stored, find_named_facility(routing, request));
    ATOLL_TRY(const auto place, routing.site_requests.take_place(request.principal->subject, stored.facility.name));
    ATOLL_TRY(const auto command, routing.connections.login_command(stored.facility));
    char machine[256] = {};
    if (::gethostname(machine, sizeof machine - 1) != 0) machine[0] = '\0';
    return Response::json(200, {{"command", command}, {"machine", machine}, {"user_id", ::geteuid()}});
}

// A part of an image, or an empty one, which asks how far it is. No database connection is held meanwhile.
Result<Response> put_image(Routing& routing, const Request& request) {
    ATOLL_TRY(const StoredFacility stored, find_named_facility(routing, request));
    ATOLL_RETURN_IF_ERROR(require_change(stored.facility, stored.facility, *request.principal));
    const auto said = [&](const char* key) {
        const auto found = request.query.find(key);
        return found == request.query.end() ? std::string() : found->second;
    };
    if (said("sha256").empty()) return invalid_argument("sha256", "is required: that of the image");
    const Json image = {{"path", said("path")}, {"sha256", said("sha256")}};
    ATOLL_TRY(const Facility with_image, patch_facility(stored.facility, {{"image", image}, {"programs", nullptr}}));
    ATOLL_RETURN_IF_ERROR(require_change(stored.facility, with_image, *request.principal));
    ImagePart part{0, 0, request.body};
    ATOLL_TRY(part.bytes_total, query_integer(request, "bytes", 0, INT64_MAX));
    ATOLL_TRY(part.offset, query_integer(request, "offset", 0, part.bytes_total));
    if (part.bytes_total == 0) return invalid_argument("bytes", "is required: those of the whole image");
    if (static_cast<std::int64_t>(part.bytes.size()) > std::min(part.bytes_total - part.offset, kImagePartBytesMax))
        return invalid_argument("bytes", "the part is longer than what the image has from there");
    ATOLL_TRY(const auto place, routing.site_requests.take_place(request.principal->subject, stored.facility.name));
    ATOLL_TRY(const auto moving, routing.connections.site(with_image)->put_image(part));
    return Response::json(200, {{"in_place", !moving},
                                {"bytes_done", moving ? moving->bytes_done : part.bytes_total},
                                {"bytes_total", moving ? moving->bytes_total : part.bytes_total}});
}

Result<std::int64_t> version_number(const std::string& text) {
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [parsed, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || parsed != end || number < 1 || number > INT32_MAX)
        return invalid_argument("version", "must be a whole number from 1, as the registry gives them");
    return number;
}

// Where a version of a dataset lies at the facility. The registry takes it from dispatch alone, which knows who may use
// the facility's account. No database connection is held meanwhile.
Result<Response> put_copy(Routing& routing, const Request& request) {
    ATOLL_TRY(const StoredFacility stored, find_named_facility(routing, request));
    ATOLL_RETURN_IF_ERROR(require_use(stored.facility, *request.principal, "name"));
    const std::string& dataset = request.param("dataset");
    ATOLL_RETURN_IF_ERROR(service::check_name(dataset, "dataset"));
    ATOLL_TRY(const DatasetInfo known, routing.catalog.dataset(dataset, "dataset"));
    ATOLL_RETURN_IF_ERROR(service::require_owner(request, known.owner, "the dataset " + dataset));
    ATOLL_TRY(const std::int64_t version, version_number(request.param("version")));
    ATOLL_TRY(const Json body, request.json());
    json::ObjectReader reader(body);
    const std::string path = reader.required_string("path");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_RETURN_IF_ERROR(routing.catalog.register_copy(dataset, version, stored.facility.name, path, ""));
    return Response::json(
        200, {{"dataset", dataset}, {"version", version}, {"facility", stored.facility.name}, {"path", path}});
}

}  // namespace

void add_facility_routes(http::Server& server, Routing& routing) {
    const service::Routes routes("dispatch", server, routing);
    routes.add(Method::kPost, "/v1/facilities", post_facility);
    routes.add(Method::kGet, "/v1/facilities", get_facilities);
    routes.add(Method::kGet, "/v1/facilities/:name", get_facility);
    routes.add(Method::kPatch, "/v1/facilities/:name", patch_facility);
    routes.add(Method::kDelete, "/v1/facilities/:name", remove_facility);
    add_facility_check_routes(server, routing);
    add_site_route(server, routing, Method::kPost, "/v1/facilities/:name/host-key", post_host_key);
    add_site_route(server, routing, Method::kPut, "/v1/facilities/:name/image", put_image);
    add_site_route(server, routing, Method::kPost, "/v1/facilities/:name/login", post_login);
    routes.add(Method::kPut, "/v1/facilities/:name/copies/:dataset/:version", put_copy);
}

}  // namespace atl::dispatch
