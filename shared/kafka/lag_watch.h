#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/kafka/kafka.h"

namespace atl::kafka {

struct DestroyPartitions {
    void operator()(rd_kafka_topic_partition_list_t* list) const { rd_kafka_topic_partition_list_destroy(list); }
};
using Partitions = std::unique_ptr<rd_kafka_topic_partition_list_t, DestroyPartitions>;

// Compares how far a consumer has read with the ends of its partitions. librdkafka can stop fetching a partition for
// good without an error, for example when its coordinator moves while the consumer asks for its committed offsets
// (https://github.com/confluentinc/librdkafka/issues/5586). One thread.
class LagWatch {
  public:
    // deaf_after: how long a position may stand still while messages wait behind it; twice as long while the consumer
    // has no partitions, as joining takes its time.
    LagWatch(rd_kafka_t* consumer, std::vector<std::string> topics, std::chrono::milliseconds deaf_after);

    void on_message(const Message& message);

    // To be called whenever a poll brought nothing. It asks the broker every third of `deaf_after`, first after all of
    // it, and waits at most a few seconds for the answers. kUnavailable: the consumer has gone deaf. A broker that does
    // not answer is no reason.
    Status look();

    std::optional<Lag> lag() const;  // none while the broker has not said

  private:
    using Clock = std::chrono::steady_clock;
    using Partition = std::pair<std::string, std::int32_t>;
    struct Standstill {
        std::int64_t position = 0;
        Clock::time_point since;
    };

    Result<Partitions> watched_partitions();
    Result<std::map<Partition, std::int64_t>> committed(const rd_kafka_topic_partition_list_t& partitions) const;
    // The offset that each partition begins (RD_KAFKA_OFFSET_BEGINNING) or ends with.
    Result<std::map<Partition, std::int64_t>> offsets(const rd_kafka_topic_partition_list_t& partitions,
                                                      std::int64_t which) const;
    Status measure();

    rd_kafka_t* const consumer_;
    const std::vector<std::string> topics_;
    const std::chrono::milliseconds deaf_after_;
    Clock::time_point next_look_;
    bool has_partitions_ = false;
    std::map<Partition, std::int64_t> delivered_;  // the offset after the newest message that was polled
    std::map<Partition, Standstill> standstills_;  // partitions where messages wait
    std::optional<std::int64_t> waiting_;
};

}  // namespace atl::kafka
