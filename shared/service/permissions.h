#pragma once

#include <span>
#include <string>
#include <string_view>

#include "shared/auth/auth.h"
#include "shared/base/result.h"
#include "shared/http/server/server.h"

// Who may call which operation of the four services: one table, from which routes take their roles, and against which
// the OpenAPI documents and a running stack are tested. A new operation needs a row.
namespace atl::service {

// kOwn: an operator on things that belong to them, an attempt's token on things that its scope names.
enum class May { kNo, kOwn, kYes };

// An admin may call every operation.
struct Permission {
    std::string_view service;  // "*": each of the four
    http::Method method;
    std::string_view path;  // as in the OpenAPI documents: "/v1/datasets/{name}"
    May operators = May::kNo;
    May viewers = May::kNo;
    May attempts = May::kNo;
    std::string_view owned = {};   // what an operator must own where `operators` is kOwn: "the dataset"
    std::string_view caller = {};  // a service that may call it as well, by its token's subject: "dispatch"
    May scrapers = May::kNo;       // tokens of the role metrics
};

std::span<const Permission> permissions();
// `path` in either form, "/v1/datasets/:name" too. Null: the table has no such operation.
const Permission* find_permission(std::string_view service, http::Method method, std::string_view path);

// "admin, operator (owner of the dataset), dispatch", as the OpenAPI documents say it.
std::string describe_roles(const Permission& permission);
// The roles that the server lets through to the handler.
http::Access access_of(const Permission& permission);
// kPermissionDenied: an operator where only a service may call. Ownership is for the handler to check.
Status check_caller(const Permission& permission, const auth::Principal& principal);

}  // namespace atl::service
