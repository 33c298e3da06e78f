#include "shared/service/testing/openapi_check.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

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
    explicit Checker(const Json& document) : document_(document) {}

    std::vector<std::string> run(const http::Server& server) {
        if (document_.value("openapi", "").rfind("3.1.", 0) != 0) fault("openapi is not 3.1");
        if (!document_.contains("info") || document_["info"].value("title", "").empty() ||
            document_["info"].value("version", "").empty())
            fault("info needs a title and a version");
        const Json paths = document_.value("paths", Json::object());
        for (const auto& [path, item] : paths.items()) check_path(path, item);
        compare_routes(server);
        check_references(document_);
        return std::move(faults_);
    }

  private:
    void fault(std::string text) { faults_.push_back(std::move(text)); }

    void check_path(const std::string& path, const Json& item) {
        for (const char* method : kMethods) {
            if (!item.contains(method)) continue;
            std::string name = method;
            std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
            name += " " + path;
            operations_.insert(name);
            check_operation(name, path, item[method]);
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
        for (const std::string& operation : operations_)
            if (!routes.contains(operation)) fault(operation + ": described but not served");
    }

    void check_references(const Json& value) {
        if (value.is_object() && value.contains("$ref") && resolve_reference(document_, value) == nullptr)
            fault("$ref leads nowhere: " + value["$ref"].dump());
        if (value.is_structured())
            for (const Json& child : value) check_references(child);
    }

    const Json& document_;
    std::vector<std::string> faults_;
    std::set<std::string> operations_;
    std::set<std::string> operation_ids_;
};

}  // namespace

std::vector<std::string> openapi_faults(std::string_view document, const http::Server& server) {
    const auto parsed = json::parse(document);
    if (!parsed.ok()) return {"not JSON: " + parsed.error().message};
    return Checker(*parsed).run(server);
}

}  // namespace atl::service
