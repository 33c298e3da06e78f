#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "shared/http/server/server.h"
#include "shared/pg/pg.h"

namespace atl::service {

// Gives a dead letter to its handler again: events::InboxConsumer::replay().
using Replay = std::function<Status(const std::string& event_id)>;

// GET /v1/dead-letters: the events that this service's handler refused; POST /v1/dead-letters/:id/replay.
// `service`: whose they are, "dispatch" or "aggregation".
void add_dead_letter_routes(std::string_view service, http::Server& server, pg::Pool& pool, Replay replay);

}  // namespace atl::service
