#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>

#include "shared/base/backoff.h"
#include "shared/events/outbox.h"
#include "shared/metrics/common.h"

namespace atl::events {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStopWait{250};     // how long stopping may take
constexpr milliseconds kIdleWait{2000};    // a notification tells of new rows; none tells that another relay has died
constexpr milliseconds kHeldBackWait{20};  // rows wait for an older transaction to end, which notifies nobody
constexpr std::chrono::seconds kLagInterval{2};
constexpr milliseconds kConnectTimeout{3000};
constexpr milliseconds kSendTimeout{5000};       // without a confirmation
constexpr milliseconds kLagMax{60'000};          // before it counts as a fault
constexpr milliseconds kHolderSought{10'000};    // before it is asked whose transaction is in the way
constexpr milliseconds kGiveWay{2 * kIdleWait};  // after it, whatever the others were told, each has looked

// An array literal of Postgres: "{1,2,3}".
std::string join_ids(const pg::Rows& rows) {
    std::string ids = "{";
    for (int i = 0; i < rows.size(); ++i) ids += (i > 0 ? "," : "") + rows.text(i, "id");
    return ids + "}";
}

std::vector<kafka::Message> make_messages(const pg::Rows& rows) {
    std::vector<kafka::Message> messages;
    for (int i = 0; i < rows.size(); ++i)
        messages.push_back({.topic = rows.text(i, "topic"),
                            .key = rows.text(i, "key"),
                            .value = rows.text(i, "event"),
                            .headers = {{"content-type", "application/cloudevents+json"}}});
    return messages;
}

// Whose transaction in this database is the oldest that has written something. Of another role's one learns less.
Result<std::string> oldest_writer(pg::Connection& connection) {
    ATOLL_TRY(
        const auto rows,
        connection.query(
            "SELECT 'process ' || pid || ' of PostgreSQL' || coalesce(' (' || nullif(application_name, '') || ')', '')"
            " || coalesce(', user ' || usename, '') || coalesce(', has had a transaction open for ' ||"
            " floor(extract(epoch FROM clock_timestamp() - xact_start)) || ' s', '') AS who FROM pg_stat_activity"
            " WHERE backend_xid IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid() ORDER BY "
            "age(backend_xid) DESC LIMIT 1"));
    return rows.empty() ? "a transaction is open in the database" : rows.text(0, "who");
}

}  // namespace

class RelayLoop {
  public:
    RelayLoop(pg::Pool& pool, std::string conninfo, std::string schema, std::string brokers, metrics::Registry& metrics)
        : pool_(pool),
          conninfo_(std::move(conninfo)),
          schema_(std::move(schema)),
          brokers_(std::move(brokers)),
          sent_(metrics.counter(metrics::kCommon["atoll_outbox_sent_total"])),
          held_back_(metrics.counter(metrics::kCommon["atoll_outbox_held_back_total"])),
          waiting_(metrics.gauge(metrics::kCommon["atoll_outbox_waiting"])),
          lag_s_(metrics.gauge(metrics::kCommon["atoll_outbox_lag_seconds"])),
          failures_(metrics.counter(metrics::kCommon["atoll_outbox_failures_total"])) {}

    void run(const std::stop_token& stop) {
        repeat_until_stopped(
            stop, kRetryWait, kRetryWaitMax, [this] { return step(); },
            [this](const Error& error) {
                spdlog::warn("outbox of {}: {}", schema_, describe(error));
                failures_.Increment();
                note_failure(describe(error));
                next_look_ = {};
                listener_.reset();
                producer_.reset();      // a new one keeps the order, see kafka::Producer::send
                known_topics_.clear();  // one may have been deleted
            });
    }

    Status ready() const {
        const std::lock_guard lock(mutex_);
        if (lag_ < kLagMax) return {};
        return unavailable("events have waited to be sent for " + std::to_string(lag_.count() / 1000) + " s" +
                           (failure_.empty() ? "" : ": " + failure_));
    }

  private:
    Status step() {
        if (!listener_) {
            ATOLL_TRY(listener_, pg::connect(conninfo_));
            ATOLL_RETURN_IF_ERROR(listener_->query("LISTEN " + outbox_channel(schema_)));
        }
        ATOLL_RETURN_IF_ERROR(measure_lag());
        if (std::chrono::steady_clock::now() >= std::max(next_look_, give_way_until_)) {
            ATOLL_TRY(const milliseconds pause, move_batch());
            next_look_ = std::chrono::steady_clock::now() + pause;
            if (pause == milliseconds(0)) return {};
        }
        const auto left =
            std::chrono::ceil<milliseconds>(std::max(next_look_, give_way_until_) - std::chrono::steady_clock::now());
        ATOLL_TRY(const auto told, listener_->wait_for_notifications(std::clamp(left, milliseconds(0), kStopWait)));
        if (!told.empty()) next_look_ = {};
        return {};
    }

    // Before sending, so that it is told also while no broker answers.
    Status measure_lag() {
        if (std::chrono::steady_clock::now() < next_lag_) return {};
        next_lag_ = std::chrono::steady_clock::now() + kLagInterval;
        ATOLL_TRY(auto lease, pool_.acquire());
        ATOLL_TRY(const auto rows,
                  lease->query("SELECT (SELECT count(*) FROM outbox) AS waiting, coalesce((SELECT 1000 * extract(epoch"
                               " FROM clock_timestamp() - (event->>'time')::timestamptz) FROM outbox ORDER BY id"
                               " LIMIT 1), 0)::bigint AS lag_ms"));
        waiting_.Set(static_cast<double>(rows.integer(0, "waiting")));
        const milliseconds lag(rows.integer(0, "lag_ms"));
        lag_s_.Set(static_cast<double>(lag.count()) / 1000);
        if (is_held_back_ && lag >= kHolderSought) {
            ATOLL_TRY(const std::string who, oldest_writer(*lease));
            note_failure(who + "; no event is sent before it ends");
        }
        const std::lock_guard lock(mutex_);
        lag_ = lag;
        return {};
    }

    void note_failure(std::string reason) {
        const std::lock_guard lock(mutex_);
        failure_ = std::move(reason);
    }

    // Sends the oldest rows and deletes them; how long to wait for more, 0 when there may be more already. The lock
    // ends with the transaction. It gives this transaction no id until rows are deleted, so that waiting for the
    // broker holds back no other relay.
    Result<milliseconds> move_batch() {
        ATOLL_RETURN_IF_ERROR(connect());
        ATOLL_TRY(auto lease, pool_.acquire());
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*lease));
        ATOLL_TRY(const auto lock, transaction.query("SELECT pg_try_advisory_xact_lock(hashtextextended("
                                                     "'atoll.outbox.' || current_schema(), 0)) AS mine"));
        if (!lock.boolean(0, "mine")) return kIdleWait;
        ATOLL_TRY(const auto rows,
                  transaction.query("SELECT id, topic, key, event FROM outbox"
                                    " WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY id LIMIT 200"));
        is_held_back_ = false;
        if (rows.empty()) {
            ATOLL_TRY(const auto any, transaction.query("SELECT EXISTS (SELECT 1 FROM outbox) AS held_back"));
            is_held_back_ = any.boolean(0, "held_back");
            if (!is_held_back_) return kIdleWait;
            held_back_.Increment();
            return kHeldBackWait;
        }
        if (const Status sent = send(make_messages(rows)); !sent.ok()) {
            give_way_until_ = std::chrono::steady_clock::now() + kGiveWay;
            return sent.error();
        }
        ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM outbox WHERE id = ANY ($1::bigint[])", {join_ids(rows)}));
        ATOLL_RETURN_IF_ERROR(transaction.commit());
        sent_.Increment(rows.size());
        note_failure({});
        return milliseconds(0);
    }

    // Before the lock is asked for: one that no broker answers must not keep it from one that can send.
    Status connect() {
        if (producer_) return {};
        if (!kafka::Probe(brokers_).is_reachable(kConnectTimeout)) return unavailable("kafka: no broker answers");
        ATOLL_TRY(producer_, kafka::Producer::create(brokers_, "atoll-" + schema_));
        return {};
    }

    Status send(const std::vector<kafka::Message>& messages) {
        std::set<std::string> missing;
        for (const auto& message : messages)
            if (!known_topics_.contains(message.topic)) missing.insert(message.topic);
        if (!missing.empty()) {
            ATOLL_RETURN_IF_ERROR(
                kafka::ensure_topics(brokers_, {missing.begin(), missing.end()}, kTopicPartitions, -1));
            known_topics_.merge(missing);
        }
        return producer_->send(messages, kSendTimeout);
    }

    pg::Pool& pool_;
    const std::string conninfo_;
    const std::string schema_;
    const std::string brokers_;
    prometheus::Counter& sent_;
    prometheus::Counter& held_back_;
    prometheus::Gauge& waiting_;
    prometheus::Gauge& lag_s_;
    prometheus::Counter& failures_;
    std::chrono::steady_clock::time_point next_lag_;
    std::chrono::steady_clock::time_point next_look_;
    std::chrono::steady_clock::time_point give_way_until_;  // it had the lock and could not send: others may
    std::optional<pg::Connection> listener_;
    std::optional<kafka::Producer> producer_;
    std::set<std::string> known_topics_;
    bool is_held_back_ = false;  // by a transaction that began before the oldest event
    mutable std::mutex mutex_;
    milliseconds lag_{0};  // age of the oldest event in the outbox
    std::string failure_;  // the newest, until events are sent
};

Relay::Relay(pg::Pool& pool, std::string conninfo, std::string schema, std::string brokers, metrics::Registry& metrics)
    : loop_(std::make_unique<RelayLoop>(pool, std::move(conninfo), std::move(schema), std::move(brokers), metrics)),
      thread_([loop = loop_.get()](const std::stop_token& stop) { loop->run(stop); }) {}

Relay::~Relay() = default;

Status Relay::ready() const {
    return loop_->ready();
}

}  // namespace atl::events
