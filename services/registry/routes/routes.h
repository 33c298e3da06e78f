#pragma once

#include <string>

#include "shared/http/server/server.h"
#include "shared/pg/pg.h"

namespace atl::registry {

// What the handlers work with; outlives the server.
struct Routing {
    pg::Pool& pool;
    std::string topic;  // of what they announce
};

void add_routes(http::Server& server, Routing& routing);

}  // namespace atl::registry
