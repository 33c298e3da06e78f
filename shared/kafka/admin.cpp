#include <array>

#include "shared/kafka/handle.h"
#include "shared/kafka/kafka.h"

namespace atl::kafka {
namespace {

constexpr int kAdminTimeoutMs = 15000;

struct DestroyTopic {
    void operator()(rd_kafka_NewTopic_t* topic) const { rd_kafka_NewTopic_destroy(topic); }
};
using NewTopic = std::unique_ptr<rd_kafka_NewTopic_t, DestroyTopic>;
struct DestroyQueue {
    void operator()(rd_kafka_queue_t* queue) const { rd_kafka_queue_destroy(queue); }
};
struct DestroyEvent {
    void operator()(rd_kafka_event_t* event) const { rd_kafka_event_destroy(event); }
};

Status check_results(const rd_kafka_CreateTopics_result_t* result) {
    std::size_t count = 0;
    const rd_kafka_topic_result_t** topics = rd_kafka_CreateTopics_result_topics(result, &count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto code = rd_kafka_topic_result_error(topics[i]);
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR || code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) continue;
        return make_error(code, std::string("cannot create the topic ") + rd_kafka_topic_result_name(topics[i]));
    }
    return {};
}

Status create(rd_kafka_t* handle, std::vector<rd_kafka_NewTopic_t*>& topics) {
    const std::unique_ptr<rd_kafka_queue_t, DestroyQueue> queue(rd_kafka_queue_new(handle));
    rd_kafka_CreateTopics(handle, topics.data(), topics.size(), nullptr, queue.get());
    const std::unique_ptr<rd_kafka_event_t, DestroyEvent> event(rd_kafka_queue_poll(queue.get(), kAdminTimeoutMs));
    if (event == nullptr) return unavailable("kafka: no answer to the creation of topics");
    const auto code = rd_kafka_event_error(event.get());
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return make_error(code, "cannot create topics");
    return check_results(rd_kafka_event_CreateTopics_result(event.get()));
}

}  // namespace

Status ensure_topics(const std::string& brokers, const std::vector<std::string>& topics, int partitions,
                     int replication) {
    ATOLL_TRY(const Handle handle, make_handle(RD_KAFKA_PRODUCER, brokers, {}));
    std::vector<NewTopic> owned;
    std::vector<rd_kafka_NewTopic_t*> borrowed;
    std::array<char, 512> why{};
    for (const auto& topic : topics) {
        owned.emplace_back(rd_kafka_NewTopic_new(topic.c_str(), partitions, replication, why.data(), why.size()));
        if (owned.back() == nullptr) return invalid_argument(topic, std::string("kafka: ") + why.data());
        // The broker's clock dates messages: it refuses those of a producer whose clock is far ahead of its own.
        rd_kafka_NewTopic_set_config(owned.back().get(), "message.timestamp.type", "LogAppendTime");
        borrowed.push_back(owned.back().get());
    }
    return create(handle.get(), borrowed);
}

class Probe::Impl {
  public:
    explicit Impl(std::string brokers) : brokers_(std::move(brokers)) {}

    bool ask(std::chrono::milliseconds timeout) {
        if (handle_ == nullptr || certificate_.is_renewed()) {
            certificate_ = CertificateWatch(brokers_);
            auto made = make_handle(RD_KAFKA_PRODUCER, brokers_, {});
            if (!made.ok()) return false;
            handle_ = std::move(made).value();
        }
        const struct rd_kafka_metadata* metadata = nullptr;
        if (rd_kafka_metadata(handle_.get(), /*all_topics=*/0, nullptr, &metadata, static_cast<int>(timeout.count())) !=
            RD_KAFKA_RESP_ERR_NO_ERROR)
            return false;
        rd_kafka_metadata_destroy(metadata);
        return true;
    }

  private:
    const std::string brokers_;
    CertificateWatch certificate_{brokers_};
    Handle handle_;
};

Probe::Probe(std::string brokers) : impl_(std::make_unique<Impl>(std::move(brokers))) {}
Probe::~Probe() = default;

bool Probe::is_reachable(std::chrono::milliseconds timeout) {
    return impl_->ask(timeout);
}

}  // namespace atl::kafka
