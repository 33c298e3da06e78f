#pragma once

#include "services/dispatch/db/events.h"
#include "shared/events/events.h"

namespace atl::dispatch {

// The handler of aggregation's topic: applies what became of a round's updates to its job. Any other type of event is
// not for us. kInvalidArgument, naming the member of the data, for an event that cannot be read.
Status apply_aggregation_event(pg::Transaction& transaction, const Topics& topics, const events::Event& event);

}  // namespace atl::dispatch
