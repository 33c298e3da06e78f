#include <spdlog/spdlog.h>

#include "shared/kafka/handle.h"
#include "shared/kafka/kafka.h"
#include "shared/kafka/lag_watch.h"

namespace atl::kafka {
namespace {

struct DestroyMessage {
    void operator()(rd_kafka_message_t* message) const { rd_kafka_message_destroy(message); }
};
using RawMessage = std::unique_ptr<rd_kafka_message_t, DestroyMessage>;

std::string bytes(const void* data, std::size_t size) {
    return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
}

std::map<std::string, std::string> read_headers(const rd_kafka_message_t* message) {
    std::map<std::string, std::string> result;
    rd_kafka_headers_t* headers = nullptr;
    if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR) return result;
    const char* name = nullptr;
    const void* value = nullptr;
    std::size_t size = 0;
    for (std::size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
         ++i)
        result[name] = bytes(value, size);
    return result;
}

Message convert(const rd_kafka_message_t* raw) {
    Message message;
    message.topic = rd_kafka_topic_name(raw->rkt);
    message.key = bytes(raw->key, raw->key_len);
    message.value = bytes(raw->payload, raw->len);
    message.headers = read_headers(raw);
    message.partition = raw->partition;
    message.offset = raw->offset;
    return message;
}

}  // namespace

class Consumer::Impl {
  public:
    Impl(Handle handle, CertificateWatch certificate, std::vector<std::string> topics,
         std::chrono::milliseconds deaf_after)
        : handle_(std::move(handle)),
          certificate_(std::move(certificate)),
          watch_(handle_.get(), std::move(topics), deaf_after) {}
    ~Impl() { rd_kafka_consumer_close(handle_.get()); }  // a member without a name leaves the group
    rd_kafka_t* handle() { return handle_.get(); }
    LagWatch& watch() { return watch_; }
    const CertificateWatch& certificate() const { return certificate_; }

  private:
    Handle handle_;
    CertificateWatch certificate_;
    LagWatch watch_;
};

Result<Consumer> Consumer::create(const std::string& brokers, const std::string& group,
                                  const std::vector<std::string>& topics, const std::string& instance,
                                  std::chrono::milliseconds deaf_after) {
    Settings settings{.values = {{"group.id", group},
                                 {"client.id", group},
                                 {"enable.auto.commit", "false"},
                                 {"enable.auto.offset.store", "false"},
                                 {"auto.offset.reset", "earliest"},
                                 // librdkafka 2.0.2 predates fixes of the cooperative assignor.
                                 {"partition.assignment.strategy", "range"},
                                 {"session.timeout.ms", "10000"},
                                 {"heartbeat.interval.ms", "1000"},
                                 {"topic.metadata.refresh.interval.ms", "10000"},
                                 {"allow.auto.create.topics", "false"}}};
    if (!instance.empty()) settings.values.emplace("group.instance.id", instance);
    CertificateWatch certificate(brokers);  // before the file is read
    ATOLL_TRY(Handle handle, make_handle(RD_KAFKA_CONSUMER, brokers, settings));
    rd_kafka_poll_set_consumer(handle.get());
    const Partitions list(rd_kafka_topic_partition_list_new(static_cast<int>(topics.size())));
    for (const auto& topic : topics)
        rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
    const auto code = rd_kafka_subscribe(handle.get(), list.get());
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return make_error(code, "cannot subscribe");
    return Consumer(std::make_unique<Impl>(std::move(handle), std::move(certificate), topics, deaf_after));
}

Consumer::Consumer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Consumer::~Consumer() = default;
Consumer::Consumer(Consumer&&) noexcept = default;
Consumer& Consumer::operator=(Consumer&&) noexcept = default;

Result<std::vector<Message>> Consumer::poll(std::chrono::milliseconds timeout, int messages_max) {
    if (impl_->certificate().is_renewed()) return unavailable("kafka: the certificate was renewed: connecting anew");
    std::vector<Message> messages;
    int wait_ms = static_cast<int>(timeout.count());
    while (static_cast<int>(messages.size()) < messages_max) {
        const RawMessage raw(rd_kafka_consumer_poll(impl_->handle(), wait_ms));
        if (raw == nullptr) break;
        wait_ms = 0;
        if (raw->err == RD_KAFKA_RESP_ERR_NO_ERROR)
            messages.push_back(convert(raw.get()));
        else if (raw->err == RD_KAFKA_RESP_ERR__FATAL)
            return make_error(rd_kafka_fatal_error(impl_->handle(), nullptr, 0), "the consumer cannot go on");
        else  // librdkafka retries by itself
            spdlog::warn("kafka: {}", rd_kafka_message_errstr(raw.get()));
    }
    for (const Message& message : messages) impl_->watch().on_message(message);
    if (messages.empty()) ATOLL_RETURN_IF_ERROR(impl_->watch().look());
    return messages;
}

std::optional<Lag> Consumer::lag() const {
    return impl_->watch().lag();
}

Status Consumer::commit(const Message& last_done) {
    const Partitions list(rd_kafka_topic_partition_list_new(1));
    rd_kafka_topic_partition_list_add(list.get(), last_done.topic.c_str(), last_done.partition)->offset =
        last_done.offset + 1;
    const auto code = rd_kafka_commit(impl_->handle(), list.get(), /*async=*/0);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return make_error(code, "cannot commit the offset");
    return {};
}

}  // namespace atl::kafka
