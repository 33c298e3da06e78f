#pragma once

#include "services/dispatch/domain/round_machine.h"

namespace atl::dispatch {

// Whether an answer of the aggregation, which whoever writes to Kafka may have made, is one for the job's round: what
// it names, the round and the store agree. `global`: the version that it names as the round made it, by the store's
// word; null where it tells of a failure. False: it comes again, or the job has ended, and it changes nothing. An error
// says why it counts for nothing.
Result<bool> check_aggregation(const JobView& job, const AggregationResult& result, const json::Json& global);

}  // namespace atl::dispatch
