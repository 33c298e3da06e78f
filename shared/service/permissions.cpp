#include "shared/service/permissions.h"

#include <algorithm>

#include "shared/auth/subjects.h"

namespace atl::service {
namespace {

using http::Method;

constexpr May kNo = May::kNo;
constexpr May kOwn = May::kOwn;
constexpr May kYes = May::kYes;

// Columns: operators, viewers, attempts; then what an operator must own, the service that may call it too, and tokens
// for metrics.
constexpr Permission kPermissions[] = {
    {"*", Method::kGet, "/v1/metrics", kYes, kYes, kNo, "", "", kYes},
    {"*", Method::kGet, "/v1/token", kYes, kYes, kYes},

    {"registry", Method::kGet, "/v1/datasets", kYes, kYes, kNo},
    {"registry", Method::kPost, "/v1/datasets", kYes, kNo, kNo},
    {"registry", Method::kGet, "/v1/datasets/{name}", kYes, kYes, kNo},
    {"registry", Method::kPatch, "/v1/datasets/{name}", kOwn, kNo, kNo, "the dataset"},
    {"registry", Method::kDelete, "/v1/datasets/{name}", kOwn, kNo, kNo, "the dataset"},
    {"registry", Method::kGet, "/v1/datasets/{name}/versions", kYes, kYes, kNo},
    {"registry", Method::kPost, "/v1/datasets/{name}/versions", kOwn, kNo, kNo, "the dataset", auth::kDispatch},
    {"registry", Method::kGet, "/v1/datasets/{name}/versions/{version}", kYes, kYes, kNo},
    {"registry", Method::kDelete, "/v1/datasets/{name}/versions/{version}", kOwn, kNo, kNo, "the dataset"},
    {"registry", Method::kGet, "/v1/datasets/{name}/versions/{version}/copies", kYes, kYes, kNo},
    {"registry", Method::kPut, "/v1/datasets/{name}/versions/{version}/copies/{facility}", kNo, kNo, kNo, "",
     auth::kDispatch},
    {"registry", Method::kDelete, "/v1/datasets/{name}/versions/{version}/copies/{facility}", kOwn, kNo, kNo,
     "the dataset"},
    {"registry", Method::kPost, "/v1/copies/find", kYes, kYes, kNo},
    {"registry", Method::kGet, "/v1/datasets/{name}/croissant", kYes, kYes, kNo},

    {"store", Method::kGet, "/v1/blobs/{sha256}", kYes, kYes, kOwn},
    {"store", Method::kHead, "/v1/blobs/{sha256}", kYes, kYes, kOwn},
    {"store", Method::kPut, "/v1/blobs/{sha256}", kYes, kNo, kOwn},
    {"store", Method::kPost, "/v1/blobs/missing", kYes, kNo, kOwn},
    {"store", Method::kPost, "/v1/blobs/{sha256}/check", kNo, kNo, kNo, "", auth::kAggregation},
    {"store", Method::kGet, "/v1/models", kYes, kYes, kNo},
    {"store", Method::kPost, "/v1/models", kYes, kNo, kNo},
    {"store", Method::kGet, "/v1/models/{model}", kYes, kYes, kNo},
    {"store", Method::kDelete, "/v1/models/{model}", kOwn, kNo, kNo, "the model"},
    {"store", Method::kGet, "/v1/models/{model}/versions", kYes, kYes, kNo},
    {"store", Method::kPost, "/v1/models/{model}/versions", kOwn, kNo, kOwn, "the model", auth::kAggregation},
    {"store", Method::kGet, "/v1/models/{model}/versions/{reference}", kYes, kYes, kNo},
    {"store", Method::kDelete, "/v1/models/{model}/versions/{reference}", kOwn, kNo, kNo, "the model"},
    {"store", Method::kPut, "/v1/models/{model}/tags/{tag}", kOwn, kNo, kNo, "the model"},
    {"store", Method::kDelete, "/v1/models/{model}/tags/{tag}", kOwn, kNo, kNo, "the model"},
    {"store", Method::kGet, "/v1/versions/{digest}", kYes, kYes, kOwn},
    {"store", Method::kGet, "/v1/damaged-blobs", kYes, kYes, kNo},
    {"store", Method::kPost, "/v1/prune", kOwn, kNo, kNo, "the model"},
    {"store", Method::kGet, "/v1/uploads/{task}/{attempt}", kYes, kYes, kNo},

    {"dispatch", Method::kGet, "/v1/facilities", kYes, kYes, kNo},
    {"dispatch", Method::kPost, "/v1/facilities", kNo, kNo, kNo},
    {"dispatch", Method::kGet, "/v1/facilities/{name}", kYes, kYes, kNo},
    {"dispatch", Method::kPatch, "/v1/facilities/{name}", kOwn, kNo, kNo, "the facility"},
    {"dispatch", Method::kDelete, "/v1/facilities/{name}", kOwn, kNo, kNo, "the facility"},
    {"dispatch", Method::kPost, "/v1/facilities/{name}/check", kOwn, kNo, kNo, "the facility, or allowed there"},
    {"dispatch", Method::kPut, "/v1/facilities/{name}/check-jobs/{id}", kOwn, kNo, kNo,
     "the facility, or allowed there"},
    {"dispatch", Method::kGet, "/v1/facilities/{name}/check-jobs/{id}", kOwn, kNo, kNo,
     "the facility, or of the check job"},
    {"dispatch", Method::kDelete, "/v1/facilities/{name}/check-jobs/{id}", kOwn, kNo, kNo,
     "the facility, or of the check job"},
    {"dispatch", Method::kPut, "/v1/facilities/{name}/copies/{dataset}/{version}", kOwn, kNo, kNo,
     "the dataset, and allowed there"},
    {"dispatch", Method::kPost, "/v1/facilities/{name}/host-key", kOwn, kNo, kNo, "the facility"},
    {"dispatch", Method::kPut, "/v1/facilities/{name}/image", kOwn, kNo, kNo, "the facility"},
    {"dispatch", Method::kPost, "/v1/facilities/{name}/login", kNo, kNo, kNo},
    {"dispatch", Method::kGet, "/v1/preparations", kYes, kYes, kNo},
    {"dispatch", Method::kPost, "/v1/preparations", kOwn, kNo, kNo, "the dataset, and allowed at the facility"},
    {"dispatch", Method::kGet, "/v1/preparations/{id}", kYes, kYes, kNo},
    {"dispatch", Method::kDelete, "/v1/preparations/{id}", kOwn, kNo, kNo, "the preparation"},
    {"dispatch", Method::kGet, "/v1/jobs", kYes, kYes, kNo},
    {"dispatch", Method::kPost, "/v1/jobs", kOwn, kNo, kNo, "the output model, and allowed at the facilities"},
    {"dispatch", Method::kGet, "/v1/jobs/{id}", kYes, kYes, kNo},
    {"dispatch", Method::kDelete, "/v1/jobs/{id}", kOwn, kNo, kNo, "the job"},
    {"dispatch", Method::kPost, "/v1/prune", kNo, kNo, kNo},
    {"dispatch", Method::kGet, "/v1/jobs/{id}/rounds", kYes, kYes, kNo},
    {"dispatch", Method::kGet, "/v1/jobs/{id}/rounds/{round}/updates", kYes, kYes, kNo},
    {"dispatch", Method::kGet, "/v1/jobs/{id}/events", kYes, kYes, kNo},
    {"dispatch", Method::kGet, "/v1/jobs/{id}/logs", kYes, kNo, kNo},
    {"dispatch", Method::kGet, "/v1/jobs/{id}/tasks/{task}/script", kYes, kNo, kNo},
    {"dispatch", Method::kPost, "/v1/job-checks", kOwn, kNo, kNo, "the output model, and allowed at the facilities"},
    {"dispatch", Method::kPost, "/v1/scripts", kOwn, kNo, kNo, "the output model, and allowed at the facilities"},
    {"dispatch", Method::kPost, "/v1/jobs/{id}/cancel", kOwn, kNo, kNo, "the job"},
    {"dispatch", Method::kPost, "/v1/jobs/{id}/pause", kOwn, kNo, kNo, "the job"},
    {"dispatch", Method::kPost, "/v1/jobs/{id}/resume", kOwn, kNo, kNo, "the job"},
    {"dispatch", Method::kPost, "/v1/jobs/{id}/participants/{facility}/readmit", kOwn, kNo, kNo, "the job"},
    {"dispatch", Method::kPost, "/v1/tokens", kNo, kNo, kNo},
    {"dispatch", Method::kGet, "/v1/tokens", kNo, kNo, kNo},
    {"dispatch", Method::kDelete, "/v1/tokens/{id}", kNo, kNo, kNo},
    {"dispatch", Method::kGet, "/v1/dead-letters", kYes, kYes, kNo},
    {"dispatch", Method::kPost, "/v1/dead-letters/{id}/replay", kYes, kNo, kNo},

    {"aggregation", Method::kGet, "/v1/aggregations", kYes, kYes, kNo},
    {"aggregation", Method::kGet, "/v1/aggregations/{job}/{round}", kYes, kYes, kNo},
    {"aggregation", Method::kPut, "/v1/aggregations/{job}/{round}", kNo, kNo, kNo, "", auth::kDispatch},
    {"aggregation", Method::kGet, "/v1/strategies", kYes, kYes, kNo},
    {"aggregation", Method::kGet, "/v1/dead-letters", kYes, kYes, kNo},
    {"aggregation", Method::kPost, "/v1/dead-letters/{id}/replay", kYes, kNo, kNo},
};

// "/v1/jobs/:id" -> "/v1/jobs/{id}"
std::string with_braces(std::string_view path) {
    std::string braced;
    bool is_open = false;
    for (const char c : path) {
        if (c == '/' && is_open) {
            braced += '}';
            is_open = false;
        }
        is_open = is_open || c == ':';
        braced += c == ':' ? '{' : c;
    }
    return is_open ? braced + "}" : braced;
}

}  // namespace

std::span<const Permission> permissions() {
    return kPermissions;
}

const Permission* find_permission(std::string_view service, Method method, std::string_view path) {
    const std::string wanted = with_braces(path);
    const auto found = std::find_if(std::begin(kPermissions), std::end(kPermissions), [&](const Permission& row) {
        return (row.service == service || row.service == "*") && row.method == method && row.path == wanted;
    });
    return found == std::end(kPermissions) ? nullptr : found;
}

std::string describe_roles(const Permission& permission) {
    std::string roles = "admin";
    if (permission.operators == May::kYes) roles += ", operator";
    if (permission.operators == May::kOwn) roles += ", operator (owner of " + std::string(permission.owned) + ")";
    if (permission.viewers != May::kNo) roles += ", viewer";
    if (permission.attempts != May::kNo) roles += ", facility";
    if (permission.scrapers != May::kNo) roles += ", metrics";
    if (!permission.caller.empty()) roles += ", " + std::string(permission.caller);
    return roles;
}

http::Access access_of(const Permission& permission) {
    // The services' tokens have the role of an operator.
    const bool takes_operators = permission.operators != May::kNo || !permission.caller.empty();
    http::Access access = http::Access::roles({auth::Role::kAdmin});
    const auto add = [&access](bool may, auth::Role role) {
        if (may) access.role_bits |= http::Access::roles({role}).role_bits;
    };
    add(takes_operators, auth::Role::kOperator);
    add(permission.viewers != May::kNo, auth::Role::kViewer);
    add(permission.attempts != May::kNo, auth::Role::kFacility);
    add(permission.scrapers != May::kNo, auth::Role::kMetrics);
    return access;
}

Status check_caller(const Permission& permission, const auth::Principal& principal) {
    const bool is_service_only = permission.operators == May::kNo && !permission.caller.empty();
    if (!is_service_only || principal.role == auth::Role::kAdmin || auth::is_service(principal, permission.caller))
        return {};
    return permission_denied("only " + std::string(permission.caller) + " or an admin may do this");
}

}  // namespace atl::service
