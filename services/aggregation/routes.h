#pragma once

#include "shared/http/server.h"
#include "shared/pg/pg.h"

namespace atl::aggregation {

// GET /v1/aggregations and /v1/aggregations/:job/:round, for those who may read. `pool` must outlive the server.
void add_routes(http::Server& server, pg::Pool& pool);

}  // namespace atl::aggregation
