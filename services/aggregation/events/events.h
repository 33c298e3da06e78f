#pragma once

#include <string>
#include <vector>

#include "services/aggregation/settings.h"
#include "shared/events/events.h"
#include "shared/round/closed_round.h"

// What comes in from dispatch and goes out to it.
namespace atl::aggregation {

std::string rounds_topic(const std::string& topic_prefix);
std::string results_topic(const std::string& topic_prefix);

// The handler of the rounds' topic: records a closed round as work; every other type of event is not for us. Whoever
// can write to Kafka may have sent it, so only its job and round are read: what the round is made of, dispatch is
// asked. An error says that dispatch has no such round, or none that waits; kUnavailable while dispatch says nothing. A
// closed round that cannot be aggregated as dispatch describes it fails at once.
Status apply_event(pg::Transaction& transaction, const events::Event& event, const Settings& settings);

// Records a closed round of which nothing is known yet as work, as dispatch describes it; nothing where its job has
// ended. kInvalidArgument: it cannot be aggregated as dispatch describes it; otherwise the errors are those of
// apply_event().
Status take_round(pg::Transaction& transaction, const std::string& job, std::int64_t number, const Settings& settings);

// atoll.aggregation.completed.v1 {job, round, version, model, updates_refused: [{facility, task, version, reason}]}
Status add_completed(pg::Transaction& transaction, const std::string& topic_prefix, const round::ClosedRound& round,
                     const std::string& version);
// atoll.aggregation.failed.v1 {job, round, error, updates_refused}
Status add_failed(pg::Transaction& transaction, const std::string& topic_prefix, const std::string& job,
                  std::int64_t round, const std::string& error, const std::vector<round::RefusedUpdate>& refused);

}  // namespace atl::aggregation
