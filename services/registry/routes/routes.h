#pragma once

#include "services/registry/settings.h"
#include "shared/http/server/server.h"
#include "shared/pg/pg.h"

namespace atl::registry {

// Adds the registry's routes. `pool` outlives the server.
void add_routes(http::Server& server, pg::Pool& pool, const Settings& settings);

}  // namespace atl::registry
