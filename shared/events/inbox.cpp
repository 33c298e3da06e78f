#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "shared/base/backoff.h"
#include "shared/base/contained.h"
#include "shared/events/outbox.h"
#include "shared/json/printable.h"
#include "shared/metrics/common.h"

namespace atl::events {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPollTimeout{200};  // also how long stopping may take
constexpr std::chrono::hours kPruneInterval{1};
constexpr std::chrono::seconds kCountInterval{5};
constexpr std::chrono::seconds kBrokerPatience{2};

}  // namespace

class InboxLoop {
  public:
    InboxLoop(pg::Pool& pool, std::string brokers, std::string name, std::vector<std::string> topics,
              InboxConsumer::Handler handler, metrics::Registry& metrics, InboxOptions options)
        : pool_(pool),
          brokers_(std::move(brokers)),
          probe_(brokers_),
          name_(std::move(name)),
          topics_(std::move(topics)),
          handler_(std::move(handler)),
          options_(std::move(options)),
          handled_(counter(metrics, "handled")),
          repeated_(counter(metrics, "repeated")),
          dead_lettered_(counter(metrics, "dead_lettered")),
          waiting_(metrics.gauge(metrics::kInbox["atoll_inbox_dead_letters"], {{"consumer", name_}})),
          unread_(metrics.gauge(metrics::kInbox["atoll_inbox_lag_messages"], {{"consumer", name_}})),
          lag_s_(metrics.gauge(metrics::kInbox["atoll_inbox_lag_seconds"], {{"consumer", name_}})),
          pruned_events_(pruned(metrics, "inbox")),
          pruned_letters_(pruned(metrics, "dead_letters")) {}

    void run(const std::stop_token& stop) {
        repeat_until_stopped(
            stop, kRetryWait, kRetryWaitMax, [&] { return step(stop); },
            [this](const Error& error) {
                spdlog::warn("inbox of {}: {}", name_, describe(error));
                note_obstacle(describe(error), Clock::now());
                consumer_.reset();
            });
    }

    // Forgets what is old, each hour. A thread of its own: there may be millions after a long time.
    void keep_pruned(const std::stop_token& stop) {
        do {
            const Status status = contained([&] { return prune(stop); });
            if (!status.ok()) spdlog::warn("inbox of {}: cannot prune: {}", name_, describe(status.error()));
        } while (wait_unless_stopped(stop, kPruneInterval));
    }

    Status ready() {
        if (!probe_.is_reachable(kBrokerPatience)) return unavailable("no Kafka broker of " + brokers_ + " answers");
        const std::lock_guard lock(mutex_);
        if (!obstacle_ || Clock::now() < obstacle_->since + options_.wait_max) return {};
        const auto waited = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - obstacle_->since);
        return unavailable("events have not taken effect for " + std::to_string(waited.count()) +
                           " s: " + obstacle_->reason);
    }

    Status replay(const std::string& event_id) {
        ATOLL_TRY(auto lease, pool_.acquire());
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*lease));
        ATOLL_TRY(const auto letter,
                  transaction.query("DELETE FROM dead_letters WHERE consumer = $1 AND event_id = $2 RETURNING value",
                                    {name_, event_id}));
        if (letter.empty()) return not_found("there is no dead letter " + event_id, "id");
        ATOLL_TRY(const auto value, json::parse(letter.text(0, "value")));
        ATOLL_TRY(const Event event, from_json(value));
        ATOLL_RETURN_IF_ERROR(contained([&] { return handler_(transaction, event); }));
        return transaction.commit();
    }

  private:
    prometheus::Counter& counter(metrics::Registry& metrics, const std::string& result) {
        return metrics.counter(metrics::kInbox["atoll_inbox_events_total"], {{"consumer", name_}, {"result", result}});
    }

    static prometheus::Counter& pruned(metrics::Registry& metrics, const std::string& table) {
        return metrics.counter(metrics::kInbox["atoll_pruned_rows_total"], {{"table", table}});
    }

    // What the inbox remembers must outlast the broker, which keeps messages for 90 days as `atoll up` sets it: after a
    // long time off all of them come again.
    Status prune(const std::stop_token& stop) {
        const auto count_in = [](prometheus::Counter& counter) {
            return [&counter](std::int64_t rows) { counter.Increment(static_cast<double>(rows)); };
        };
        ATOLL_RETURN_IF_ERROR(pg::delete_in_batches(
            pool_, {"inbox", "consumer = $1 AND handled_at < now() - interval '100 days'", {name_}, "handled_at"}, stop,
            count_in(pruned_events_)));
        return pg::delete_in_batches(
            pool_, {"dead_letters", "consumer = $1 AND failed_at < now() - interval '100 days'", {name_}, "failed_at"},
            stop, count_in(pruned_letters_));
    }

    Status step(const std::stop_token& stop) {
        if (!consumer_) {
            if (options_.makes_topics)
                ATOLL_RETURN_IF_ERROR(kafka::ensure_topics(brokers_, topics_, kTopicPartitions, -1));
            ATOLL_TRY(consumer_,
                      kafka::Consumer::create(brokers_, name_, topics_, options_.instance, options_.deaf_after));
        }
        count_dead_letters();
        ATOLL_TRY(const auto messages, consumer_->poll(kPollTimeout));
        if (messages.empty()) note_lag(consumer_->lag());
        std::map<std::pair<std::string, std::int32_t>, const kafka::Message*> last_done;
        for (const auto& message : messages) {
            if (!deliver(message, stop)) break;
            last_done[{message.topic, message.partition}] = &message;
        }
        // After the database: an offset that is lost brings events again, and the inbox knows them.
        for (const auto& [partition, message] : last_done) ATOLL_RETURN_IF_ERROR(consumer_->commit(*message));
        return {};
    }

    // Until it took effect, was known already or becomes a dead letter; false when asked to stop before.
    bool deliver(const kafka::Message& message, const std::stop_token& stop) {
        for (int failures = 1; !stop.stop_requested(); ++failures) {
            Status status = contained([&] { return handle(message); });
            if (!status.ok() && !is_transient(status.error().code))
                status = contained([&, why = describe(status.error())] { return keep_dead_letter(message, why); });
            if (status.ok()) {
                note_progress();
                return true;
            }
            spdlog::warn("inbox of {}: will try again: {}", name_, describe(status.error()));
            note_obstacle(describe(status.error()), Clock::now());
            wait_unless_stopped(stop, backoff_delay(failures, kRetryWait, kRetryWaitMax));
        }
        return false;
    }

    Status handle(const kafka::Message& message) {
        ATOLL_TRY(const auto value, json::parse(message.value));
        ATOLL_TRY(const Event event, from_json(value));
        ATOLL_TRY(auto lease, pool_.acquire());
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*lease));
        ATOLL_TRY(const bool fresh, record(transaction, event.id));
        if (!fresh) {
            repeated_.Increment();
            return {};
        }
        ATOLL_RETURN_IF_ERROR(handler_(transaction, event));
        ATOLL_RETURN_IF_ERROR(transaction.commit());
        handled_.Increment();
        return {};
    }

    // False if the event is in the inbox already.
    Result<bool> record(pg::Transaction& transaction, const std::string& event_id) {
        ATOLL_TRY(const auto rows,
                  transaction.query("INSERT INTO inbox (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
                                    {name_, event_id}));
        return rows.affected() == 1;
    }

    Status keep_dead_letter(const kafka::Message& message, const std::string& why) {
        const std::string id = read_id(message);
        spdlog::error("inbox of {}: dead letter {}: {}", name_, id, why);
        ATOLL_TRY(auto lease, pool_.acquire());
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*lease));
        ATOLL_RETURN_IF_ERROR(record(transaction, id));
        ATOLL_RETURN_IF_ERROR(transaction.query(
            "INSERT INTO dead_letters (consumer, event_id, topic, key, value, error) VALUES ($1, $2, $3, $4, $5, $6)"
            " ON CONFLICT DO NOTHING",
            {name_, id, message.topic, shown(message.key), shown(message.value), json::printable(why)}));
        ATOLL_RETURN_IF_ERROR(transaction.commit());
        dead_lettered_.Increment();
        return {};
    }

    // The event's, or its place in the topic where it has none that the database can hold.
    static std::string read_id(const kafka::Message& message) {
        const auto value = json::parse(message.value);
        if (value.ok() && value->is_object() && value->contains("id") && value->at("id").is_string()) {
            auto id = value->at("id").get<std::string>();
            if (id.find('\0') == std::string::npos) return id;
        }
        return message.topic + "/" + std::to_string(message.partition) + "/" + std::to_string(message.offset);
    }

    // Text that the database can hold, whatever the bytes are.
    static std::string shown(const std::string& bytes) {
        if (json::parse(bytes).ok()) return bytes;
        return json::Json(bytes).dump(-1, ' ', true, json::Json::error_handler_t::replace);
    }

    // After a poll that brought nothing.
    void note_lag(const std::optional<kafka::Lag>& lag) {
        if (!lag) return;
        unread_.Set(static_cast<double>(lag->messages));
        if (lag->messages == 0)
            note_progress();
        else if (lag->age > std::chrono::milliseconds(0))
            note_obstacle("Kafka holds them and they do not come", Clock::now() - lag->age);
    }

    void note_progress() {
        const std::lock_guard lock(mutex_);
        obstacle_.reset();
        lag_s_.Set(0);
    }

    void note_obstacle(const std::string& reason, Clock::time_point since) {
        const std::lock_guard lock(mutex_);
        obstacle_ = {reason, obstacle_ ? std::min(since, obstacle_->since) : since};
        lag_s_.Set(std::chrono::duration<double>(Clock::now() - obstacle_->since).count());
    }

    void count_dead_letters() {
        if (Clock::now() < next_count_) return;
        next_count_ = Clock::now() + kCountInterval;
        auto lease = pool_.acquire();
        if (!lease.ok()) return;
        const auto rows = (*lease)->query("SELECT count(*) AS n FROM dead_letters WHERE consumer = $1", {name_});
        if (rows.ok()) waiting_.Set(static_cast<double>(rows->integer(0, "n")));
    }

    pg::Pool& pool_;
    const std::string brokers_;
    kafka::Probe probe_;
    const std::string name_;
    const std::vector<std::string> topics_;
    const InboxConsumer::Handler handler_;
    const InboxOptions options_;
    prometheus::Counter& handled_;
    prometheus::Counter& repeated_;
    prometheus::Counter& dead_lettered_;
    prometheus::Gauge& waiting_;
    prometheus::Gauge& unread_;
    prometheus::Gauge& lag_s_;
    prometheus::Counter& pruned_events_;
    prometheus::Counter& pruned_letters_;
    std::optional<kafka::Consumer> consumer_;
    Clock::time_point next_count_ = Clock::now();

    // What events that came, or that should, wait for.
    struct Obstacle {
        std::string reason;
        Clock::time_point since;
    };
    std::mutex mutex_;
    std::optional<Obstacle> obstacle_;
};

InboxConsumer::InboxConsumer(pg::Pool& pool, std::string brokers, std::string consumer_name,
                             std::vector<std::string> topics, Handler handler, metrics::Registry& metrics,
                             InboxOptions options)
    : loop_(std::make_unique<InboxLoop>(pool, std::move(brokers), std::move(consumer_name), std::move(topics),
                                        std::move(handler), metrics, std::move(options))),
      pruner_([loop = loop_.get()](const std::stop_token& stop) { loop->keep_pruned(stop); }),
      thread_([loop = loop_.get()](const std::stop_token& stop) { loop->run(stop); }) {}

InboxConsumer::~InboxConsumer() {
    pruner_.request_stop();  // both at once
}

Status InboxConsumer::ready() {
    return loop_->ready();
}

Status InboxConsumer::replay(const std::string& event_id) {
    return loop_->replay(event_id);
}

Result<std::vector<json::Json>> dead_letters(pg::Connection& connection, std::int64_t limit) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT consumer, event_id, topic, key, value, error, " + pg::rfc3339("failed_at") +
                                   " AS failed_at FROM dead_letters"
                                   " ORDER BY dead_letters.failed_at, event_id LIMIT $1",
                               {limit}));
    std::vector<json::Json> events;
    for (int i = 0; i < rows.size(); ++i) {
        json::Json event = {{"id", rows.text(i, "event_id")}};
        for (const char* column : {"consumer", "topic", "key", "value", "error", "failed_at"})
            event[column] = rows.text(i, column);
        events.push_back(std::move(event));
    }
    return events;
}

}  // namespace atl::events
