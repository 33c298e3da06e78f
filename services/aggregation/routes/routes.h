#pragma once

#include "services/aggregation/settings.h"
#include "shared/http/server/server.h"
#include "shared/pg/pg.h"

namespace atl::aggregation {

// What the handlers work with; outlives the server.
struct Routing {
    pg::Pool& pool;
    Settings settings;
};

void add_routes(http::Server& server, Routing& routing);

}  // namespace atl::aggregation
