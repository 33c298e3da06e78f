#include "shared/kafka/testing/topics.h"

#include "shared/kafka/handle.h"

namespace atl::kafka {

void delete_topic(const std::string& brokers, const std::string& topic) {
    constexpr int kPatienceMs = 15000;
    const Handle handle = make_handle(RD_KAFKA_PRODUCER, brokers, {}).value();
    rd_kafka_queue_t* queue = rd_kafka_queue_new(handle.get());
    rd_kafka_DeleteTopic_t* one = rd_kafka_DeleteTopic_new(topic.c_str());
    rd_kafka_DeleteTopics(handle.get(), &one, 1, nullptr, queue);
    rd_kafka_event_t* event = rd_kafka_queue_poll(queue, kPatienceMs);
    check(event != nullptr && rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR_NO_ERROR, "cannot delete " + topic);
    std::size_t count = 0;
    const auto* results = rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &count);
    check(count == 1 && rd_kafka_topic_result_error(results[0]) == RD_KAFKA_RESP_ERR_NO_ERROR,
          "cannot delete " + topic);
    rd_kafka_event_destroy(event);
    rd_kafka_DeleteTopic_destroy(one);
    rd_kafka_queue_destroy(queue);
}

}  // namespace atl::kafka
