#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/result.h"

// Kafka over librdkafka.
namespace atl::kafka {

// A cluster, `brokers` below, is "host:port,…", or "FILE@host:port,…" for TLS by which each side shows who it is: the
// file holds our private key, its certificate and whose certificates we trust, as PEM. FILE.properties holds settings
// of librdkafka in its place, a line each, for SASL or certificates apart ("security.protocol=SASL_SSL"). A certificate
// that is renewed in its file is taken within seconds.
std::string with_credentials(const std::string& brokers, const std::string& file);
// The file with the certificate that we show to the cluster; empty: none.
std::string certificate_file(const std::string& brokers);

struct Message {
    std::string topic;
    std::string key;
    std::string value;
    std::map<std::string, std::string> headers = {};
    std::int32_t partition = -1;
    std::int64_t offset = -1;
};

// Idempotent (enable.idempotence), acks=all. Thread-safe.
class Producer {
  public:
    static Result<Producer> create(const std::string& brokers, const std::string& client_id);
    ~Producer();
    Producer(Producer&&) noexcept;
    Producer& operator=(Producer&&) noexcept;

    // Sends the messages in order and returns when the broker has confirmed all; an Error if one was refused, or none
    // confirmed for as long as `timeout`. After an Error the first of each partition may have arrived, and the rest may
    // still: to keep the order, make a new Producer and send all again.
    Status send(const std::vector<Message>& messages, std::chrono::milliseconds timeout = std::chrono::seconds(30));

  private:
    class Impl;
    explicit Producer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// What a consumer has not read yet of its partitions; of all partitions of its topics while it has none.
struct Lag {
    std::int64_t messages = 0;
    std::chrono::milliseconds age{0};  // how long messages have waited in a partition without any of it being read
};

// Manual commits, range assignor, starts at the earliest offset. One thread. A process that dies is noticed by the
// group within 10 s. With an `instance` (unique among the living members of the group) it is a static member: whoever
// comes back under that name within the 10 s has its partitions at once, and a consumer that ends keeps them as long.
//
// Commit what was dealt with, never more; a message that was polled and not committed comes again:
//
//   ATOLL_TRY(auto consumer, kafka::Consumer::create(brokers, "dispatch", {"atoll.jobs"}));
//   while (!stopping) {
//       ATOLL_TRY(const auto messages, consumer.poll(std::chrono::milliseconds(500)));
//       for (const kafka::Message& message : messages) {
//           ATOLL_RETURN_IF_ERROR(handle(message));
//           ATOLL_RETURN_IF_ERROR(consumer.commit(message));
//       }
//   }
class Consumer {
  public:
    static constexpr std::chrono::seconds kDeafAfter{15};
    // deaf_after: how long messages may wait at a broker that answers without any of them coming.
    static Result<Consumer> create(const std::string& brokers, const std::string& group,
                                   const std::vector<std::string>& topics, const std::string& instance = {},
                                   std::chrono::milliseconds deaf_after = kDeafAfter);
    ~Consumer();
    Consumer(Consumer&&) noexcept;
    Consumer& operator=(Consumer&&) noexcept;

    // Up to messages_max messages, none when the time is over. An Error means that a new Consumer is needed, also when
    // its certificate was renewed, and when this one has gone deaf: the broker answers, and what waits there does not
    // come. Passing faults are logged and retried inside. Now and then a call that brings nothing asks for the lag,
    // which takes up to a few seconds more where the broker does not answer.
    Result<std::vector<Message>> poll(std::chrono::milliseconds timeout, int messages_max = 100);
    std::optional<Lag> lag() const;           // when last asked for; none while the broker has not said
    Status commit(const Message& last_done);  // everything of its partition up to and including it

  private:
    class Impl;
    explicit Consumer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Creates the topics that do not exist yet, which take the broker's time for their messages and not the producer's.
// partitions and replication -1: the broker's defaults.
Status ensure_topics(const std::string& brokers, const std::vector<std::string>& topics, int partitions,
                     int replication = 1);
// Whether a broker answers, asked by one client over connections that stay open. One thread at a time.
class Probe {
  public:
    explicit Probe(std::string brokers);
    ~Probe();
    bool is_reachable(std::chrono::milliseconds timeout);  // true when a metadata request is answered in time

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace atl::kafka
