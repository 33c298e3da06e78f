#pragma once

#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/db/events.h"
#include "shared/events/events.h"

namespace atl::dispatch {

// The handler of aggregation's topic: applies what became of a round's updates to its job. Any other type of event is
// not for us. Whoever can write to Kafka may have sent it: it counts as far as the store and the round agree with it
// (domain/aggregation_check.h). kInvalidArgument, kNotFound and kConflict, naming the member of the data, for an event
// that cannot be read or does not agree; kUnavailable while the store says nothing.
Status apply_aggregation_event(pg::Transaction& transaction, const Catalog& catalog, const Topics& topics,
                               const events::Event& event);

}  // namespace atl::dispatch
