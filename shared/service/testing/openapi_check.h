#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shared/http/server/server.h"

namespace atl::service {

// For tests: what is wrong with a service's OpenAPI document, one sentence each; empty when it is right. Checked: it is
// 3.1 with a title and version; its operations are exactly the server's routes and those that run() adds for everybody
// (not /metrics); each has a unique operationId, a summary, its path's parameters and at least one 2xx and one problem
// response; each $ref leads somewhere; each operation but the public ones needs the bearer token; a member of an answer
// that may be left out is never null, and one of a request may be; each operation's description begins with the roles
// that the table of permissions gives it, if a `service` is named.
std::vector<std::string> openapi_faults(std::string_view document, const http::Server& server,
                                        std::string_view service = {});

}  // namespace atl::service
