#include "shared/service/testing/openapi_check.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "shared/service/permissions.h"
#include "shared/service/testing/schema_check.h"

namespace atl::service {
namespace {

using json::Json;

constexpr const char* kMethods[] = {"get", "head", "post", "put", "patch", "delete"};
// What run() adds; but /metrics, which does not pass the gateway.
const std::set<std::string> kPublicPaths = {"/healthz", "/readyz", "/openapi.json"};
const std::set<std::string> kCommonPaths = {"/v1/metrics", "/v1/token"};

// "/v1/jobs/:id" -> "/v1/jobs/{id}"
std::string path_template(const std::string& pattern) {
    std::string path;
    bool open = false;
    for (const char c : pattern + "/") {
        if (c == '/' && open) {
            path += '}';
            open = false;
        }
        if (c == ':') open = true;
        path += c == ':' ? '{' : c;
    }
    path.pop_back();
    return path;
}

std::set<std::string> path_parameters(const std::string& path) {
    std::set<std::string> names;
    for (auto open = path.find('{'); open != std::string::npos; open = path.find('{', open + 1))
        names.insert(path.substr(open + 1, path.find('}', open) - open - 1));
    return names;
}

class Checker {
  public:
    Checker(const Json& document, std::string_view service) : document_(document), service_(service) {}

    std::vector<std::string> run(const http::Server& server) {
        if (document_.value("openapi", "").rfind("3.1.", 0) != 0) fault("openapi is not 3.1");
        if (!document_.contains("info") || document_["info"].value("title", "").empty() ||
            document_["info"].value("version", "").empty())
            fault("info needs a title and a version");
        const Json paths = document_.value("paths", Json::object());
        for (const auto& [path, item] : paths.items()) check_path(path, item);
        compare_routes(server);
        check_references(document_);
        check_absence();
        check_causes();
        return std::move(faults_);
    }

  private:
    // A problem names every cause that an error may have, and no other.
    void check_causes() {
        const Json::json_pointer at("/components/schemas/Problem/properties/cause/enum");
        std::set<std::string> named;
        if (document_.contains(at)) named = document_.at(at).get<std::set<std::string>>();
        std::set<std::string> known;
        for (int cause = 1; parse_cause(to_string(static_cast<Cause>(cause))) == static_cast<Cause>(cause); ++cause)
            known.insert(to_string(static_cast<Cause>(cause)));
        if (named != known) fault("the Problem's causes are not those of shared/base/result.h");
    }

    void fault(std::string text) { faults_.push_back(std::move(text)); }

    void check_path(const std::string& path, const Json& item) {
        for (const char* method : kMethods) {
            if (!item.contains(method)) continue;
            std::string name = method;
            std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
            name += " " + path;
            operations_.insert(name);
            check_operation(name, path, item[method]);
            if (!service_.empty() && !kPublicPaths.contains(path)) check_roles(name, path, item[method]);
            check_parameters(name, path, item, item[method]);
        }
    }

    void check_operation(const std::string& name, const std::string& path, const Json& operation) {
        const std::string id = operation.value("operationId", "");
        if (id.empty() || !operation_ids_.insert(id).second) fault(name + ": operationId is missing or not unique");
        if (operation.value("summary", "").empty()) fault(name + ": no summary");
        bool success = false;
        bool problem = kPublicPaths.contains(path);
        const Json responses = operation.value("responses", Json::object());
        for (const auto& [status, response] : responses.items()) {
            success = success || status[0] == '2';
            problem = problem || status[0] == '4' || status == "default";
        }
        if (!success || !problem) fault(name + ": responses need a 2xx and a problem");
        const bool is_open = operation.contains("security") && operation["security"] == Json::array();
        if (is_open != kPublicPaths.contains(path)) fault(name + ": security does not fit");
        if (!is_open && !operation.contains("security") && !document_.contains("security"))
            fault(name + ": no security requirement");
    }

    void check_roles(const std::string& name, const std::string& path, const Json& operation) {
        const auto rows = permissions();
        const auto row = std::find_if(rows.begin(), rows.end(), [&](const Permission& one) {
            return (one.service == service_ || one.service == "*") && one.path == path &&
                   name.starts_with(std::string(http::to_string(one.method)) + " ");
        });
        if (row == rows.end()) return fault(name + ": the table of permissions has no row for it");
        const std::string roles = "Roles: " + describe_roles(*row);
        const std::string description = operation.value("description", "");
        const bool is_said = description.starts_with(roles + ".") || description.starts_with(roles + ";") ||
                             description.starts_with(roles + " (");
        if (!is_said) fault(name + ": its description does not begin with \"" + roles + "\"");
    }

    void check_parameters(const std::string& name, const std::string& path, const Json& item, const Json& operation) {
        std::set<std::string> declared;
        for (const Json& list : {item.value("parameters", Json::array()), operation.value("parameters", Json::array())})
            for (const Json& entry : list) {
                const Json* parameter = resolve_reference(document_, entry);
                if (parameter != nullptr && parameter->value("in", "") == "path")
                    declared.insert(parameter->value("name", ""));
            }
        if (declared != path_parameters(path)) fault(name + ": its path parameters are not those declared");
    }

    void compare_routes(const http::Server& server) {
        std::set<std::string> routes;
        for (const auto& paths : {kPublicPaths, kCommonPaths})
            for (const std::string& path : paths) routes.insert("GET " + path);
        for (const auto& [method, pattern] : server.routes())
            routes.insert(std::string(http::to_string(method)) + " " + path_template(pattern));
        for (const std::string& route : routes)
            if (!operations_.contains(route)) fault(route + ": served but not described");
        for (const std::string& operation : operations_) {
            const bool is_head = operation.starts_with("HEAD ");  // a GET route answers it
            if (!routes.contains(is_head ? "GET" + operation.substr(4) : operation))
                fault(operation + ": described but not served");
        }
    }

    void check_references(const Json& value) {
        if (value.is_object() && value.contains("$ref") && resolve_reference(document_, value) == nullptr)
            fault("$ref leads nowhere: " + value["$ref"].dump());
        if (value.is_structured())
            for (const Json& child : value) check_references(child);
    }

    enum class Body { kAnswer, kRequest };

    // One way to say "nothing": a member of an answer is always there and may be null, or it may be left out and is
    // never null; a member that a request may leave out may be null. (In a PATCH null takes away, and some cannot be.)
    void check_absence() {
        for (const auto& [path, item] : part_of(document_, "paths").items())
            for (const auto& [method, operation] : item.items()) {
                for (const auto& response : part_of(operation, "responses").items())
                    check_bodies(response.value(), path, Body::kAnswer);
                if (method != "patch") check_bodies(part_of(operation, "requestBody"), path, Body::kRequest);
            }
    }

    void check_bodies(const Json& reference, const std::string& path, Body body) {
        const Json* described = resolve_reference(document_, reference);
        if (described == nullptr) return;
        for (const auto& content : part_of(*described, "content").items())
            check_members(part_of(content.value(), "schema"), path, body);
    }

    void check_members(const Json& reference, const std::string& where, Body body) {
        const Json* schema = resolve_reference(document_, reference);
        if (schema == nullptr || !visited_.insert({schema, body}).second) return;
        const Json& required = part_of(*schema, "required");
        for (const auto& [name, member] : part_of(*schema, "properties").items()) {
            const std::string at = where + "." + name;
            const bool may_be_absent = std::find(required.begin(), required.end(), name) == required.end();
            const bool may_be_null = schema_faults(document_, member, Json(), "").empty();
            if (body == Body::kAnswer && may_be_absent && may_be_null) fault(at + ": may be left out and may be null");
            if (body == Body::kRequest && may_be_absent && !may_be_null)
                fault(at + ": may be left out and must not be null");
            check_members(member, at, body);
        }
        check_members(part_of(*schema, "items"), where + "[]", body);
        for (const char* key : {"allOf", "oneOf"})
            for (const Json& part : part_of(*schema, key)) check_members(part, where, body);
    }

    // Within the document; an empty object where there is no such part.
    static const Json& part_of(const Json& value, const char* key) {
        static const Json none = Json::object();
        const auto found = value.is_object() ? value.find(key) : value.end();
        return found == value.end() ? none : *found;
    }

    const Json& document_;
    std::string_view service_;
    std::vector<std::string> faults_;
    std::set<std::pair<const Json*, Body>> visited_;
    std::set<std::string> operations_;
    std::set<std::string> operation_ids_;
};

}  // namespace

std::vector<std::string> openapi_faults(std::string_view document, const http::Server& server,
                                        std::string_view service) {
    const auto parsed = json::parse(document);
    if (!parsed.ok()) return {"not JSON: " + parsed.error().message};
    return Checker(*parsed, service).run(server);
}

}  // namespace atl::service
