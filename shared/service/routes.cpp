#include "shared/service/routes.h"

namespace atl::service {

using auth::Role;

http::Access admins() {
    return http::Access::roles({Role::kAdmin});
}
http::Access writers() {
    return http::Access::roles({Role::kAdmin, Role::kOperator});
}
http::Access readers() {
    return http::Access::roles({Role::kAdmin, Role::kOperator, Role::kViewer});
}
http::Access writers_and_facilities() {
    return http::Access::roles({Role::kAdmin, Role::kOperator, Role::kFacility});
}
http::Access readers_and_facilities() {
    return http::Access::roles({Role::kAdmin, Role::kOperator, Role::kViewer, Role::kFacility});
}

http::Response answer(Result<http::Response> response, const http::Request& request) {
    return response.ok() ? std::move(response).value() : http::Response::problem(response.error(), request.request_id);
}

}  // namespace atl::service
