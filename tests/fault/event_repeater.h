#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shared/kafka/kafka.h"

namespace atl::fault {

// Reads all of a stack's topics, and sends events that came before once more, in another order: most as they were, some
// under a new id as dispatch and aggregation themselves do when no answer comes, and one that is none, whose id begins
// with "junk-".
class EventRepeater {
  public:
    explicit EventRepeater(std::string brokers);

    bool repeat(std::uint64_t seed);  // false: there is nothing yet, or the broker does not answer

  private:
    void run(const std::stop_token& stop);

    std::string brokers_;
    std::mutex mutex_;
    std::vector<kafka::Message> messages_;  // the newest, with holes where some were dropped
    std::size_t seen_ = 0;
    std::jthread thread_;
};

}  // namespace atl::fault
