#include "shared/service/routes.h"

#include "shared/base/check.h"

namespace atl::service {

const Permission& permission_of(std::string_view service, http::Method method, std::string_view pattern) {
    const Permission* found = find_permission(service, method, pattern);
    check(found != nullptr, "no row in permissions.cpp for " + std::string(http::to_string(method)) + " " +
                                std::string(pattern) + " of " + std::string(service));
    return *found;
}

http::Response answer(Result<http::Response> response, const http::Request& request) {
    return response.ok() ? std::move(response).value() : http::Response::problem(response.error(), request.request_id);
}

}  // namespace atl::service
