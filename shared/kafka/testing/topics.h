#pragma once

#include <chrono>
#include <string>

#include "shared/base/result.h"

namespace atl::kafka {

// For tests. Returns when the broker has deleted it; anything else ends the program.
void delete_topic(const std::string& brokers, const std::string& topic);

// Sends a message as a producer does whose clock is wrong by that much, and waits for what the broker says.
Status send_by_wrong_clock(const std::string& brokers, const std::string& topic, std::chrono::hours wrong_by);

}  // namespace atl::kafka
