#pragma once

#include <functional>
#include <string>

#include "shared/http/server/server.h"
#include "shared/pg/pg.h"

namespace atl::service {

// Gives a parked event to its handler again: events::InboxConsumer::replay().
using Replay = std::function<Status(const std::string& event_id)>;

// GET /v1/events/parked: the events that this service's handler refused; POST /v1/events/parked/:id/replay.
void add_parked_event_routes(http::Server& server, pg::Pool& pool, Replay replay);

}  // namespace atl::service
