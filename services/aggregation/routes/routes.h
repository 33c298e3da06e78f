#pragma once

#include "shared/http/server/server.h"
#include "shared/pg/pg.h"
#include "shared/service/dead_letters.h"

namespace atl::aggregation {

// GET /v1/aggregations and /v1/aggregations/:job/:round, for those who may read. `pool` must outlive the server.
// `replay`: of the inbox.
void add_routes(http::Server& server, pg::Pool& pool, service::Replay replay);

}  // namespace atl::aggregation
