#include "shared/service/routes.h"

#include <nlohmann/json.hpp>

#include "shared/base/check.h"

namespace atl::service {

const Permission& permission_of(std::string_view service, http::Method method, std::string_view pattern) {
    const Permission* found = find_permission(service, method, pattern);
    check(found != nullptr, "no row in permissions.cpp for " + std::string(http::to_string(method)) + " " +
                                std::string(pattern) + " of " + std::string(service));
    return *found;
}

http::Response problem(const Error& error, const std::string& request_id) {
    http::Response response = http::Response::problem(error, request_id);
    if (error.code != ErrorCode::kResourceExhausted) return response;
    json::Json body = json::Json::parse(response.body);
    body["status"] = response.status = 429;
    response.body = body.dump();
    return response;
}

http::Response answer(Result<http::Response> response, const http::Request& request) {
    return response.ok() ? std::move(response).value() : problem(response.error(), request.request_id);
}

}  // namespace atl::service
