#pragma once

#include <string>

#include "shared/http/server.h"
#include "shared/pg/pg.h"

namespace atl::registry {

struct RouteOptions {
    std::string topic = "atoll.datasets";  // where atoll.dataset.registered.v1 goes
};

// Adds the registry's routes. `pool` outlives the server.
void add_routes(http::Server& server, pg::Pool& pool, const RouteOptions& options);

}  // namespace atl::registry
