#pragma once

#include <string>

namespace atl::kafka {

// For tests. Returns when the broker has deleted it; anything else ends the program.
void delete_topic(const std::string& brokers, const std::string& topic);

}  // namespace atl::kafka
