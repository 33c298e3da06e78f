#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shared/json/json.h"
#include "shared/kafka/kafka.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

// State changes and their events commit together (transactional outbox); consumers are idempotent (inbox).
// Each service's schema holds the tables `outbox` and `inbox`, made by kTablesSql in its first migration.
namespace atl::events {

// CloudEvents 1.0 (https://github.com/cloudevents/spec), structured JSON mode.
struct Event {
    std::string id;       // empty: a new one is made
    std::string type;     // "atoll.round.closed.v1"
    std::string source;   // "/dispatch"
    std::string subject;  // "jobs/<id>/rounds/3"
    std::string time;     // RFC 3339; empty: now
    json::Json data;
};
json::Json to_json(const Event& event);
Result<Event> from_json(const json::Json& value);

// The tables of outbox and inbox: the first migration of a service that has either.
extern const std::string_view kTablesSql;

// Adds an event to the outbox of the transaction's schema. `key` decides the partition and so the order: the job's id,
// or job, round and part for aggregation parts.
Status add_to_outbox(pg::Transaction& transaction, const std::string& topic, const std::string& key, Event event);

// A thread that moves committed outbox rows to Kafka in commit order per key (rows whose transaction is older than
// every running one), woken by NOTIFY, and deletes them on the broker's confirmation. Several replicas may run it: an
// exclusive row lock lets one work at a time. Delivery is at least once.
class RelayLoop;
class Relay {
  public:
    Relay(pg::Pool& pool, std::string conninfo, std::string schema, std::string brokers, metrics::Registry& metrics);
    ~Relay();  // stops after the batch in hand

    // kUnavailable with the reason: events have waited to be sent for over a minute. Thread-safe.
    Status ready() const;

  private:
    std::unique_ptr<RelayLoop> loop_;
    std::jthread thread_;
};

class InboxLoop;

struct InboxOptions {
    std::string instance = {};                                           // as of kafka::Consumer
    std::chrono::milliseconds wait_max = std::chrono::minutes(1);        // from then on ready() calls a wait a fault
    std::chrono::milliseconds deaf_after = kafka::Consumer::kDeafAfter;  // as of kafka::Consumer
    bool makes_topics = true;                                            // false: the topics are there
};

// Consumes topics; each event's handler runs inside a transaction that also records the event's id in the inbox, so
// that a redelivery has no effect. A handler's is_transient() error is retried with back-off; another error keeps the
// event as a dead letter in `dead_letters`, with its message, and goes on. Whatever arrives costs a row: consume
// topics of which every event is wanted. Rows are kept for 100 days, dead letters as long.
//
// The service that changes its state writes the event in the same transaction, and a Relay brings it to Kafka:
//
//   ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
//   …                                                                    // the change itself
//   ATOLL_RETURN_IF_ERROR(events::add_to_outbox(transaction, "atoll.rounds", job_id, {.type = "…", .data = {…}}));
//   return transaction.commit();
//
// The service that listens does its change in the transaction that it is handed:
//
//   events::InboxConsumer consumer(pool, brokers, "aggregation", {"atoll.rounds"},
//                                  [](pg::Transaction& transaction, const events::Event& event) { … }, metrics);
class InboxConsumer {
  public:
    using Handler = std::function<Status(pg::Transaction&, const Event&)>;
    InboxConsumer(pg::Pool& pool, std::string brokers, std::string consumer_name, std::vector<std::string> topics,
                  Handler handler, metrics::Registry& metrics, InboxOptions options = {});
    ~InboxConsumer();

    // kUnavailable with the reason: no broker answers, or events have waited for longer than `wait_max` without any
    // taking effect. Asks the broker, for two seconds at most; one thread at a time.
    Status ready();

    // Gives a dead letter to the handler again and forgets it in the same transaction; from any thread. kNotFound:
    // there is none of that id; the handler's error leaves it there.
    Status replay(const std::string& event_id);

  private:
    std::unique_ptr<InboxLoop> loop_;
    std::jthread pruner_;
    std::jthread thread_;
};

// The dead letters of all consumers of the connection's schema, oldest first, up to `limit`: {"consumer", "id",
// "topic", "key", "value", "error", "failed_at"}.
Result<std::vector<json::Json>> dead_letters(pg::Connection& connection, std::int64_t limit);

}  // namespace atl::events
