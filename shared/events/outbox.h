#pragma once

#include <string>

#include "shared/events/events.h"

// What the module's own sources share.
namespace atl::events {

// Partitions of a topic that this module creates.
inline constexpr int kTopicPartitions = 6;

// Fills in the id and the time if they are empty.
void complete(Event& event);

// The channel that add_to_outbox() notifies, for the schema that holds the outbox.
std::string outbox_channel(const std::string& schema);

}  // namespace atl::events
