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

Status send_by_wrong_clock(const std::string& brokers, const std::string& topic, std::chrono::hours wrong_by) {
    constexpr int kPatienceMs = 30000;
    static rd_kafka_resp_err_t outcome;
    outcome = RD_KAFKA_RESP_ERR__TIMED_OUT;
    const auto on_delivery = [](rd_kafka_t*, const rd_kafka_message_t* message, void*) { outcome = message->err; };
    ATOLL_TRY(const Handle handle,
              make_handle(RD_KAFKA_PRODUCER, brokers, {.values = {{"acks", "all"}}, .on_delivery = on_delivery}));
    const auto time = std::chrono::system_clock::now() + wrong_by;
    const auto time_ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
    const auto code = rd_kafka_producev(handle.get(), RD_KAFKA_V_TOPIC(topic.c_str()), RD_KAFKA_V_KEY("k", 1),
                                        RD_KAFKA_V_VALUE(const_cast<char*>("v"), 1), RD_KAFKA_V_TIMESTAMP(time_ms),
                                        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return make_error(code, "cannot send");
    rd_kafka_flush(handle.get(), kPatienceMs);
    return outcome == RD_KAFKA_RESP_ERR_NO_ERROR ? Status() : make_error(outcome, "the broker did not take a message");
}

}  // namespace atl::kafka
