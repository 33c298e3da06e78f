#pragma once

#include <chrono>
#include <string>

#include "shared/events/events.h"

// What the module's own sources share.
namespace atl::events {

// Partitions of a topic that this module creates.
inline constexpr int kTopicPartitions = 6;

// After a failure, doubled at each further one in a row.
inline constexpr std::chrono::milliseconds kRetryWait{50};
inline constexpr std::chrono::milliseconds kRetryWaitMax{5000};

// Fills in the id and the time if they are empty.
void complete(Event& event);

// The channel that add_to_outbox() notifies, for the schema that holds the outbox.
std::string outbox_channel(const std::string& schema);

}  // namespace atl::events
