#include "shared/service/testing/response_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/service/testing/schema_check.h"

namespace atl::service {
namespace {

using json::Json;

std::string method_key(http::Method method) {
    std::string key = http::to_string(method);
    std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return std::tolower(c); });
    return key;
}

std::vector<std::string> split_path(const std::string& path) {
    std::vector<std::string> segments;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        segments.push_back(path.substr(begin, end - begin));
        begin = end + 1;
    }
    return segments;
}

bool is_parameter(const std::string& segment) {
    return segment.starts_with('{');
}

// Whether a path is one of "/v1/jobs/{id}"; `described` is the latter.
bool fits(const std::vector<std::string>& path, const std::vector<std::string>& described) {
    return std::equal(path.begin(), path.end(), described.begin(), described.end(),
                      [](const std::string& is, const std::string& wanted) {
                          return is == wanted || (is_parameter(wanted) && !is.empty());
                      });
}

// "application/json" of "application/json; charset=utf-8".
std::string media_type(const http::ClientResponse& answer) {
    const auto header = answer.headers.find("content-type");
    return header == answer.headers.end() ? "" : header->second.substr(0, header->second.find(';'));
}

std::vector<std::string> body_faults(const Json& document, const Json& content, const http::ClientResponse& answer) {
    if (content.empty()) return {};
    const std::string type = media_type(answer);
    if (!content.contains(type)) return {"its type \"" + type + "\" is none of those described"};
    if (!content[type].contains("schema") || !type.ends_with("json")) return {};
    const auto body = json::parse(answer.body);
    if (!body.ok()) return {describe(body.error())};
    return schema_faults(document, content[type]["schema"], *body, "body");
}

}  // namespace

ResponseCheck::ResponseCheck(std::string_view document) : document_(json::parse(document).value()) {}

const Json* ResponseCheck::find_operation(http::Method method, const std::string& path, std::string& name) const {
    const auto wanted = split_path(path.substr(0, path.find('?')));
    const Json* found = nullptr;
    for (const auto& [described, item] : document_.at("paths").items()) {
        const auto operation = item.find(method_key(method));
        if (operation == item.end() || !fits(wanted, split_path(described))) continue;
        // "/v1/blobs/missing" is no "/v1/blobs/{sha256}".
        if (found != nullptr && described.find('{') != std::string::npos) continue;
        found = &*operation;
        name = std::string(http::to_string(method)) + " " + described;
    }
    return found;
}

std::vector<std::string> ResponseCheck::faults(http::Method method, const std::string& path,
                                               const http::ClientResponse& answer) {
    std::string name;
    const Json* operation = find_operation(method, path, name);
    if (operation == nullptr) return {std::string(http::to_string(method)) + " " + path + " is not described"};
    const std::string what = name + " " + std::to_string(answer.status);
    const Json& responses = operation->at("responses");
    const std::string status = std::to_string(answer.status);
    const std::string key = responses.contains(status) ? status : "default";
    if (!responses.contains(key)) return {what + " is not described: " + answer.body};
    const Json* response = resolve_reference(document_, responses[key]);
    if (response == nullptr) return {what + ": its $ref leads nowhere"};
    std::vector<std::string> found;
    if (method != http::Method::kHead)
        for (const std::string& fault : body_faults(document_, response->value("content", Json::object()), answer))
            found.push_back(what + ": " + fault);
    const std::lock_guard lock(mutex_);
    if (answer.ok()) read_.insert(name);
    return found;
}

std::vector<std::string> ResponseCheck::unread() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [path, item] : document_.at("paths").items()) {
        const std::string name = "GET " + path;
        const bool is_own =
            path.starts_with("/v1/") && path != "/v1/metrics" && path != "/v1/token";  // run() adds these
        if (is_own && item.contains("get") && !read_.contains(name)) names.push_back(name);
    }
    return names;
}

}  // namespace atl::service
