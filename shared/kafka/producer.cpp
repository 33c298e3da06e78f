#include <algorithm>
#include <atomic>
#include <set>

#include "shared/kafka/handle.h"
#include "shared/kafka/kafka.h"

namespace atl::kafka {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPollMax{50};
constexpr milliseconds kAskMax{1000};  // for a topic

// What one send() waits for. Each message holds a reference, as a report may come after send() gave up.
struct Batch {
    std::atomic<std::size_t> confirmed{0};
    std::atomic<rd_kafka_resp_err_t> error{RD_KAFKA_RESP_ERR_NO_ERROR};
};
using BatchReference = std::shared_ptr<Batch>;

void on_delivery(rd_kafka_t*, const rd_kafka_message_t* message, void*) {
    const std::unique_ptr<BatchReference> batch(static_cast<BatchReference*>(message->_private));
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        (*batch)->error = message->err;
    else
        ++(*batch)->confirmed;
}

rd_kafka_headers_t* make_headers(const Message& message) {
    rd_kafka_headers_t* headers = rd_kafka_headers_new(message.headers.size());
    for (const auto& [name, value] : message.headers)
        rd_kafka_header_add(headers, name.c_str(), -1, value.data(), static_cast<ssize_t>(value.size()));
    return headers;
}

// librdkafka copies key and value. On success it owns the headers and the reference.
Status enqueue(rd_kafka_t* handle, const Message& message, const BatchReference& batch) {
    auto reference = std::make_unique<BatchReference>(batch);
    rd_kafka_headers_t* headers = make_headers(message);
    const auto code = rd_kafka_producev(
        handle, RD_KAFKA_V_TOPIC(message.topic.c_str()), RD_KAFKA_V_KEY(message.key.data(), message.key.size()),
        RD_KAFKA_V_VALUE(const_cast<char*>(message.value.data()), message.value.size()), RD_KAFKA_V_HEADERS(headers),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE(reference.get()), RD_KAFKA_V_END);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        (void)reference.release();
        return {};
    }
    rd_kafka_headers_destroy(headers);
    Error error = make_error(code, "cannot send to " + message.topic);
    if (code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) error.code = ErrorCode::kTooLarge;
    return error;
}

Settings settings_of(const std::string& client_id) {
    return {.values = {{"client.id", client_id},
                       {"enable.idempotence", "true"},
                       {"acks", "all"},
                       {"linger.ms", "2"},
                       {"partitioner", "murmur2_random"},
                       // No message may give up before the ones after it: send() gives up for all.
                       {"message.timeout.ms", "0"}},
            .on_delivery = on_delivery};
}

}  // namespace

class Producer::Impl {
  public:
    Impl(Handle handle, std::string brokers, std::string client_id, CertificateWatch certificate)
        : handle_(std::move(handle)),
          brokers_(std::move(brokers)),
          client_id_(std::move(client_id)),
          certificate_(std::move(certificate)) {}
    ~Impl() {
        // Reports for messages of a send() that gave up must come before their references can be freed.
        rd_kafka_purge(handle_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
        rd_kafka_flush(handle_.get(), 1000);
    }
    rd_kafka_t* handle() { return handle_.get(); }
    // Between two send(), when nothing is on its way: a client with the certificate that is in the file now.
    Status take_renewed_certificate() {
        if (!certificate_.is_renewed()) return {};
        CertificateWatch certificate(brokers_);
        ATOLL_TRY(handle_, make_handle(RD_KAFKA_PRODUCER, brokers_, settings_of(client_id_)));
        certificate_ = std::move(certificate);
        asked_for_.clear();
        return {};
    }
    // Asks the broker for a topic's partitions. librdkafka by itself looks once in a second for topics that it lacks,
    // and holds their messages back until then; so it goes on where this has no answer.
    void ask_for(const std::string& topic, milliseconds patience) {
        if (!asked_for_.insert(topic).second) return;
        const LocalTopic local(rd_kafka_topic_new(handle_.get(), topic.c_str(), nullptr));
        const rd_kafka_metadata_t* answer = nullptr;
        const auto code = rd_kafka_metadata(handle_.get(), 0, local.get(), &answer, static_cast<int>(patience.count()));
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR) rd_kafka_metadata_destroy(answer);
    }

  private:
    Handle handle_;
    const std::string brokers_;
    const std::string client_id_;
    CertificateWatch certificate_;
    std::set<std::string> asked_for_;
};

Result<Producer> Producer::create(const std::string& brokers, const std::string& client_id) {
    CertificateWatch certificate(brokers);  // before the file is read
    ATOLL_TRY(Handle handle, make_handle(RD_KAFKA_PRODUCER, brokers, settings_of(client_id)));
    return Producer(std::make_unique<Impl>(std::move(handle), brokers, client_id, std::move(certificate)));
}

Producer::Producer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Producer::~Producer() = default;
Producer::Producer(Producer&&) noexcept = default;
Producer& Producer::operator=(Producer&&) noexcept = default;

Status Producer::send(const std::vector<Message>& messages, milliseconds timeout) {
    ATOLL_RETURN_IF_ERROR(impl_->take_renewed_certificate());
    const auto batch = std::make_shared<Batch>();
    auto deadline = Clock::now() + timeout;
    for (const auto& message : messages) {
        impl_->ask_for(message.topic, std::min(timeout, kAskMax));
        ATOLL_RETURN_IF_ERROR(enqueue(impl_->handle(), message, batch));
    }
    for (std::size_t known = 0; batch->confirmed < messages.size();) {
        if (const auto code = batch->error.load(); code != RD_KAFKA_RESP_ERR_NO_ERROR)
            return make_error(code, "the broker did not take a message");
        if (Clock::now() >= deadline) return unavailable("kafka: the broker did not confirm in time");
        rd_kafka_poll(impl_->handle(), static_cast<int>(kPollMax.count()));
        if (std::exchange(known, batch->confirmed) != batch->confirmed) deadline = Clock::now() + timeout;
    }
    return {};
}

}  // namespace atl::kafka
