#include "shared/events/events.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/kafka/testing/fake_broker.h"
#include "shared/kafka/testing/topics.h"
#include "shared/metrics/common.h"
#include "shared/pg/testing/database_fixture.h"

namespace atl::events {
namespace {

using std::chrono::milliseconds;

constexpr char kSchema[] = "thing";
constexpr int kSent = 20;  // events to a broker of a test's own

class EventsTest : public pg::DatabaseTest {
  protected:
    void SetUp() override {
        DatabaseTest::SetUp();
        if (IsSkipped()) return;
        topic_ = stack().unique("test-events");
        const std::string sql =
            std::string(kTablesSql) + "CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, key text, n int);";
        const std::array<pg::Migration, 1> migrations{{{1, sql}}};
        ASSERT_TRUE(pg::migrate(*connection_, kSchema, migrations).ok());
        pool_.emplace(conninfo_, kSchema, 8);
    }

    // Stops the threads before the pool and the database go.
    void TearDown() override {
        consumer_.reset();
        relay_.reset();
        pool_.reset();
    }

    static Event event_of(const std::string& key, int n) {
        Event event;
        event.type = "atoll.test.v1";
        event.source = "/test";
        event.data = {{"key", key}, {"n", n}};
        return event;
    }
    void add(pg::Transaction& transaction, const std::string& key, int n) {
        const Status status = add_to_outbox(transaction, topic_, key, event_of(key, n));
        ASSERT_TRUE(status.ok()) << status.error().message;
    }
    void add_committed(const std::string& key, int n) {
        auto lease = pool_->acquire().value();
        auto transaction = pg::Transaction::begin(*lease).value();
        add(transaction, key, n);
        ASSERT_TRUE(transaction.commit().ok());
    }

    // One that has waited since long before this test.
    void add_old_event() {
        auto lease = pool_->acquire().value();
        auto transaction = pg::Transaction::begin(*lease).value();
        Event event = event_of("a", 1);
        event.time = "2026-01-01T00:00:00Z";
        ASSERT_TRUE(add_to_outbox(transaction, topic_, "a", event).ok());
        ASSERT_TRUE(transaction.commit().ok());
    }

    void start_relay() { relay_.emplace(*pool_, conninfo_, kSchema, stack().kafka(), metrics_); }
    void start_consumer(InboxConsumer::Handler handler, std::chrono::milliseconds wait_max = std::chrono::minutes(1)) {
        consumer_.emplace(*pool_, stack().kafka(), group_ = stack().unique("group"), std::vector{topic_},
                          std::move(handler), metrics_, InboxOptions{.wait_max = wait_max});
    }
    // Reads from a broker that answers wrongly when told to.
    void start_consumer_of(const kafka::FakeBroker& broker, std::chrono::milliseconds deaf_after) {
        consumer_.emplace(*pool_, broker.address(), group_ = stack().unique("group"), std::vector{topic_}, write_effect,
                          metrics_,
                          InboxOptions{.wait_max = milliseconds(1), .deaf_after = deaf_after, .makes_topics = false});
    }
    void send_to(const kafka::FakeBroker& broker, int events) {
        auto producer = kafka::Producer::create(broker.address(), "test").value();
        std::vector<kafka::Message> sent;
        for (int n = 0; n < events; ++n) {
            Event event = event_of("a", n);
            event.id = topic_ + "-" + std::to_string(n);
            sent.push_back({.topic = topic_, .key = std::to_string(n), .value = to_json(event).dump()});
        }
        ASSERT_TRUE(producer.send(sent).ok());
    }
    double unread() {
        return metrics_.gauge(metrics::kInbox["atoll_inbox_lag_messages"], {{"consumer", group_}}).Value();
    }
    bool is_unready_because(const std::string& why) {
        const Status ready = consumer_->ready();
        return !ready.ok() && ready.error().message.find(why) != std::string::npos;
    }
    // The ordinary handler: one row for each event.
    static Status write_effect(pg::Transaction& transaction, const Event& event) {
        ATOLL_RETURN_IF_ERROR(transaction.query("INSERT INTO effect (key, n) VALUES ($1, $2)",
                                                {event.data["key"].get<std::string>(), event.data["n"].get<int>()}));
        return {};
    }
    std::int64_t count(const std::string& table) {
        return pool_->acquire().value()->query("SELECT count(*) AS n FROM " + table).value().integer(0, "n");
    }
    std::vector<int> effects_of(const std::string& key) {
        const auto rows =
            pool_->acquire().value()->query("SELECT n FROM effect WHERE key = $1 ORDER BY id", {key}).value();
        std::vector<int> numbers;
        for (int i = 0; i < rows.size(); ++i) numbers.push_back(static_cast<int>(rows.integer(i, "n")));
        return numbers;
    }

    std::string topic_;
    std::string group_;
    metrics::Registry metrics_;
    std::optional<pg::Pool> pool_;
    std::optional<Relay> relay_;
    std::optional<InboxConsumer> consumer_;
};

TEST_F(EventsTest, ACommittedEventTakesEffectEvenIfTheRelayStartsLater) {
    add_committed("a", 1);
    {
        auto lease = pool_->acquire().value();
        auto transaction = pg::Transaction::begin(*lease).value();
        add(transaction, "a", 99);  // rolled back: never seen
    }
    EXPECT_EQ(count("outbox"), 1);
    start_relay();
    start_consumer(write_effect);
    EXPECT_TRUE(eventually([&] { return count("effect") == 1; }));
    EXPECT_EQ(effects_of("a"), std::vector{1});
    EXPECT_TRUE(eventually([&] { return count("outbox") == 0; }));
}

TEST_F(EventsTest, ALaterCommitWithASmallerIdIsNeitherLostNorOvertaken) {
    start_relay();
    start_consumer(write_effect);
    auto slow_lease = pool_->acquire().value();
    auto slow = pg::Transaction::begin(*slow_lease).value();
    add(slow, "k", 1);
    add_committed("k", 2);
    add_committed("other", 3);
    // A relay of `id > last` would send 2 now; ours has looked and holds it back.
    auto& held_back = metrics_.counter(metrics::kCommon["atoll_outbox_held_back_total"]);
    EXPECT_TRUE(eventually([&] { return held_back.Value() >= 3; }));
    EXPECT_EQ(count("outbox"), 2);
    ASSERT_TRUE(slow.commit().ok());
    EXPECT_TRUE(eventually([&] { return count("effect") == 3; }));
    EXPECT_EQ(effects_of("k"), (std::vector{1, 2}));
}

TEST_F(EventsTest, ATopicThatIsDeletedIsMadeAgain) {
    start_relay();
    add_committed("a", 1);
    ASSERT_TRUE(eventually([&] { return count("outbox") == 0; }));
    kafka::delete_topic(stack().kafka(), topic_);
    add_committed("a", 2);
    ASSERT_TRUE(eventually([&] { return count("outbox") == 0; }));
    start_consumer(write_effect);
    EXPECT_TRUE(eventually([&] { return !effects_of("a").empty(); }));
    EXPECT_EQ(effects_of("a"), std::vector{2}) << "the first went with its topic";
}

TEST_F(EventsTest, AConsumerReadsOnInATopicThatWasMadeAgain) {
    start_relay();
    start_consumer(write_effect);
    for (int n = 1; n <= 3; ++n) add_committed("a", n);
    ASSERT_TRUE(eventually([&] { return count("effect") == 3; }));
    kafka::delete_topic(stack().kafka(), topic_);
    add_committed("a", 4);
    EXPECT_TRUE(eventually([&] { return count("effect") == 4; }));
    EXPECT_EQ(effects_of("a"), (std::vector{1, 2, 3, 4}));
}

TEST_F(EventsTest, ARedeliveredEventHasOneEffect) {
    Event event = event_of("a", 1);
    event.id = "the-same";
    auto producer = kafka::Producer::create(stack().kafka(), "test").value();
    ASSERT_TRUE(kafka::ensure_topics(stack().kafka(), {topic_}, 1).ok());
    const kafka::Message message{.topic = topic_, .key = "a", .value = to_json(event).dump()};
    Event end = event_of("end", 2);
    end.id = "end";
    ASSERT_TRUE(producer.send({message, message, {.topic = topic_, .key = "a", .value = to_json(end).dump()}}).ok());
    start_consumer(write_effect);
    EXPECT_TRUE(eventually([&] { return effects_of("end").size() == 1; }));
    EXPECT_EQ(effects_of("a"), std::vector{1});
}

TEST_F(EventsTest, AnUnavailableHandlerIsTriedAgainAndItsChangesAreRolledBack) {
    std::atomic<int> calls = 0;
    start_relay();
    start_consumer([&](pg::Transaction& transaction, const Event& event) -> Status {
        ATOLL_RETURN_IF_ERROR(write_effect(transaction, event));
        return ++calls < 3 ? Status(unavailable("not now")) : Status();
    });
    add_committed("a", 1);
    EXPECT_TRUE(eventually([&] { return count("effect") == 1 && calls == 3; }));
    EXPECT_EQ(count("dead_letters"), 0);
}

TEST_F(EventsTest, PoisonBecomesADeadLetterAndTheRestGoesOn) {
    auto producer = kafka::Producer::create(stack().kafka(), "test").value();
    ASSERT_TRUE(kafka::ensure_topics(stack().kafka(), {topic_}, 1).ok());
    ASSERT_TRUE(producer.send({{.topic = topic_, .key = "a", .value = std::string("no\0t json \xff", 11)}}).ok());
    start_relay();
    start_consumer([](pg::Transaction& transaction, const Event& event) -> Status {
        ATOLL_RETURN_IF_ERROR(write_effect(transaction, event));
        if (event.data["n"] == 1) return invalid_argument("n", "n: must not be 1");
        if (event.data["n"] == 2) throw std::runtime_error("a fault");
        return {};
    });
    for (const int n : {1, 2, 3}) add_committed("a", n);
    EXPECT_TRUE(eventually([&] { return effects_of("a") == std::vector{3}; }));
    EXPECT_EQ(count("dead_letters"), 3);
    EXPECT_EQ(count("dead_letters WHERE error LIKE 'n: must not be 1'"), 1);
}

TEST_F(EventsTest, AnEventThatTheDatabaseCannotHoldIsADeadLetterAndTheRestGoesOn) {
    auto producer = kafka::Producer::create(stack().kafka(), "test").value();
    ASSERT_TRUE(kafka::ensure_topics(stack().kafka(), {topic_}, 1).ok());
    Event odd = event_of("a", 1);
    odd.id = std::string("a\0b", 3);
    ASSERT_TRUE(producer.send({{.topic = topic_, .key = "a", .value = to_json(odd).dump()}}).ok());
    start_relay();
    start_consumer([](pg::Transaction& transaction, const Event& event) -> Status {
        if (event.data["n"] == 2) return not_found(std::string("no thing a\0b\xff", 13));
        return write_effect(transaction, event);
    });
    for (const int n : {2, 3}) add_committed("a", n);
    EXPECT_TRUE(eventually([&] { return effects_of("a") == std::vector{3}; }));
    EXPECT_EQ(count("dead_letters"), 2);
    EXPECT_EQ(count("dead_letters WHERE event_id = '" + topic_ + "/0/0'"), 1) << "by its place in the topic";
    EXPECT_EQ(count("dead_letters WHERE error LIKE 'no thing ab%'"), 1);
}

TEST_F(EventsTest, ADeadLetterIsReplayedOnce) {
    std::atomic<bool> refuses = true;
    start_relay();
    start_consumer([&](pg::Transaction& transaction, const Event& event) -> Status {
        ATOLL_RETURN_IF_ERROR(write_effect(transaction, event));
        return refuses ? Status(invalid_argument("n", "n: not yet")) : Status();
    });
    add_committed("a", 1);
    ASSERT_TRUE(eventually([&] { return count("dead_letters") == 1; }));
    auto& gauge = metrics_.gauge(metrics::kInbox["atoll_inbox_dead_letters"], {{"consumer", group_}});
    EXPECT_TRUE(eventually([&] { return gauge.Value() == 1; }));
    const auto letters = dead_letters(*pool_->acquire().value(), 10).value();
    ASSERT_EQ(letters.size(), 1U);
    EXPECT_EQ(letters[0].at("error"), "n: not yet");
    const std::string id = letters[0].at("id");
    EXPECT_EQ(consumer_->replay(id).error().field, "n") << "it stays while its handler refuses it";
    EXPECT_EQ(count("dead_letters"), 1);
    EXPECT_EQ(count("effect"), 0);
    refuses = false;
    EXPECT_TRUE(consumer_->replay(id).ok());
    EXPECT_EQ(effects_of("a"), std::vector{1});
    EXPECT_EQ(count("dead_letters"), 0);
    EXPECT_EQ(consumer_->replay(id).error().code, ErrorCode::kNotFound);
}

TEST_F(EventsTest, WhatTheInboxRemembersIsForgottenAfterItsTimeHoweverMuchThereIs) {
    auto connection = pool_->acquire().value();
    ASSERT_TRUE(
        connection
            ->script("INSERT INTO inbox SELECT 'c', g, now() - interval '101 days' FROM generate_series(1, 20000) g;"
                     "INSERT INTO inbox SELECT 'c', 'new', now() - interval '99 days';"
                     "INSERT INTO inbox SELECT 'another', 'old', now() - interval '101 days';"
                     "INSERT INTO dead_letters SELECT 'c', g, 't', '', '', '', now() - g * interval '50 days'"
                     " FROM generate_series(1, 3) g")
            .ok());
    ASSERT_TRUE(kafka::ensure_topics(stack().kafka(), {topic_}, 1).ok());
    consumer_.emplace(*pool_, stack().kafka(), "c", std::vector{topic_}, write_effect, metrics_);
    EXPECT_TRUE(eventually([&] { return count("inbox") == 2 && count("dead_letters") == 1; }));
    EXPECT_EQ(count("inbox WHERE event_id IN ('new', 'old')"), 2);
    const auto pruned = [&](const char* table) {
        return metrics_.counter(metrics::kInbox["atoll_pruned_rows_total"], {{"table", table}}).Value();
    };
    EXPECT_TRUE(eventually([&] { return pruned("inbox") == 20000 && pruned("dead_letters") == 2; }));
}

TEST_F(EventsTest, TheOutboxTellsHowFarItIsBehind) {
    add_committed("a", 1);
    relay_.emplace(*pool_, conninfo_, kSchema, "127.0.0.1:1", metrics_);  // no broker there
    EXPECT_TRUE(eventually([&] {
        return metrics_.gauge(metrics::kCommon["atoll_outbox_waiting"]).Value() == 1 &&
               metrics_.gauge(metrics::kCommon["atoll_outbox_lag_seconds"]).Value() > 0;
    }));
    relay_.reset();
    start_relay();
    EXPECT_TRUE(eventually([&] {
        return metrics_.gauge(metrics::kCommon["atoll_outbox_waiting"]).Value() == 0 &&
               metrics_.gauge(metrics::kCommon["atoll_outbox_lag_seconds"]).Value() == 0;
    }));
}

TEST_F(EventsTest, ARelayIsNotReadyWhileEventsWaitForOverAMinuteAndSaysWhy) {
    add_old_event();
    relay_.emplace(*pool_, conninfo_, kSchema, "127.0.0.1:1", metrics_);
    EXPECT_TRUE(eventually([&] {
        const Status ready = relay_->ready();
        return !ready.ok() && ready.error().message.find("no broker answers") != std::string::npos;
    }));
    relay_.reset();
    start_relay();
    EXPECT_TRUE(eventually([&] { return relay_->ready().ok() && count("outbox") == 0; }));
}

TEST_F(EventsTest, WhoseTransactionHoldsEventsBackIsSaid) {
    auto holder = pg::connect(conninfo_ + " application_name=a-forgotten-psql").value();
    ASSERT_TRUE(holder.query("BEGIN").ok());
    ASSERT_TRUE(holder.query("SELECT pg_current_xact_id()").ok());
    add_old_event();
    start_relay();
    EXPECT_TRUE(eventually([&] {
        const Status ready = relay_->ready();
        return !ready.ok() && ready.error().message.find("(a-forgotten-psql)") != std::string::npos;
    })) << relay_->ready().error().message;
    ASSERT_TRUE(holder.query("COMMIT").ok());
    EXPECT_TRUE(eventually([&] { return relay_->ready().ok() && count("outbox") == 0; }));
}

TEST_F(EventsTest, AnInboxTellsHowLongEventsHaveHadNoEffect) {
    std::atomic<bool> is_away = true;
    start_relay();
    start_consumer([&](pg::Transaction& transaction, const Event& event) -> Status {
        return is_away ? Status(unavailable("not now")) : write_effect(transaction, event);
    });
    auto& lag_s = metrics_.gauge(metrics::kInbox["atoll_inbox_lag_seconds"], {{"consumer", group_}});
    add_committed("a", 1);
    EXPECT_TRUE(eventually([&] { return lag_s.Value() > 0; }));
    EXPECT_TRUE(consumer_->ready().ok()) << "for less than a minute";
    is_away = false;
    EXPECT_TRUE(eventually([&] { return count("effect") == 1 && lag_s.Value() == 0; }));
}

TEST_F(EventsTest, AnInboxWhoseEventsWaitTooLongIsNotReadyAndSaysWhy) {
    std::atomic<bool> is_away = true;
    start_relay();
    start_consumer(
        [&](pg::Transaction& transaction, const Event& event) -> Status {
            return is_away ? Status(unavailable("the store is away")) : write_effect(transaction, event);
        },
        std::chrono::milliseconds(300));
    add_committed("a", 1);
    EXPECT_TRUE(eventually([&] {
        const Status ready = consumer_->ready();
        return !ready.ok() && ready.error().message.find("the store is away") != std::string::npos;
    }));
    is_away = false;
    EXPECT_TRUE(eventually([&] { return count("effect") == 1 && consumer_->ready().ok(); }));
}

TEST_F(EventsTest, EventsThatWaitAtABrokerThatAnswersAreCountedAndToldUntilTheyCome) {
    kafka::FakeBroker broker(topic_, 3);
    send_to(broker, kSent);
    broker.refuse_members();
    start_consumer_of(broker, std::chrono::seconds(5));  // joining that broker takes over 3 s
    EXPECT_TRUE(eventually([&] { return is_unready_because("Kafka holds them and they do not come"); }));
    EXPECT_EQ(unread(), kSent);
    broker.accept_members();
    EXPECT_TRUE(eventually([&] { return count("effect") == kSent && unread() == 0 && consumer_->ready().ok(); }));
}

TEST_F(EventsTest, AnInboxMakesAConsumerAnewThatHasGoneDeaf) {
    kafka::FakeBroker broker(topic_, 3);
    send_to(broker, kSent);
    bool was_deaf = false;
    for (int attempt = 0; attempt < 10 && !was_deaf; ++attempt) {
        consumer_.reset();
        ASSERT_TRUE(pool_->acquire().value()->script("TRUNCATE effect").ok());
        broker.disown_group_once();
        start_consumer_of(broker, kafka::FakeBroker::kDeafAfterMin);
        EXPECT_TRUE(eventually([&] {
            was_deaf = is_unready_because("holds unread messages, and none has come");
            return was_deaf || count("effect") == kSent;  // it joined too late to go deaf
        })) << "it hears nothing and does not know";
    }
    ASSERT_TRUE(was_deaf) << "nothing was tested";
    EXPECT_TRUE(eventually([&] { return count("effect") == kSent && consumer_->ready().ok(); }));
}

TEST_F(EventsTest, ARelayThatNoBrokerAnswersKeepsNothingFromTheOthers) {
    metrics::Registry its_own;
    const Relay cut_off(*pool_, conninfo_, kSchema, "127.0.0.1:1", its_own);
    auto& failures = its_own.counter(metrics::kCommon["atoll_outbox_failures_total"]);
    add_committed("a", 1);
    int held = 0;
    EXPECT_TRUE(eventually([&] {
        held += count(
                    "pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = "
                    "current_database())") > 0
                    ? 1
                    : 0;
        return failures.Value() >= 2;
    }));
    EXPECT_EQ(held, 0) << "looks that found the outbox locked";
    start_relay();
    for (int n = 2; n <= 5; ++n) {
        EXPECT_TRUE(eventually([&] { return count("outbox") == 0; }));
        add_committed("a", n);
    }
    EXPECT_TRUE(eventually([&] { return count("outbox") == 0; }));
    EXPECT_EQ(metrics_.counter(metrics::kCommon["atoll_outbox_sent_total"]).Value(), 5);
}

TEST_F(EventsTest, AnEventThatIsTooLargeIsRefusedBeforeItIsStored) {
    auto lease = pool_->acquire().value();
    auto transaction = pg::Transaction::begin(*lease).value();
    Event event = event_of("a", 1);
    event.data["text"] = std::string(600U << 10, 'x');
    EXPECT_EQ(add_to_outbox(transaction, topic_, "a", event).error().code, ErrorCode::kTooLarge);
}

// Not a test: the relay as a process of its own, which RelaysThatAreKilled… kills.
TEST(EventsChild, DISABLED_Relay) {
    const char* conninfo = std::getenv("ATOLL_TEST_CONNINFO");
    const char* brokers = std::getenv("ATOLL_TEST_BROKERS");
    ASSERT_TRUE(conninfo != nullptr && brokers != nullptr);
    metrics::Registry metrics;
    pg::Pool pool(conninfo, kSchema, 2);
    const Relay relay(pool, conninfo, kSchema, brokers, metrics);
    for (;;) ::pause();
}

TEST_F(EventsTest, RelaysThatAreKilledAtAnyInstantLoseDoubleOrReorderNothing) {
    constexpr int kEvents = 1500;
    const TemporaryDirectory directory;
    const DaemonOptions options{
        .log = directory.path() / "relay.log",
        .environment = {{"ATOLL_TEST_CONNINFO", conninfo_}, {"ATOLL_TEST_BROKERS", stack().kafka()}},
        .directory = {}};
    const std::vector<std::string> argv{"/proc/self/exe", "--gtest_also_run_disabled_tests",
                                        "--gtest_filter=EventsChild.DISABLED_Relay"};
    start_consumer(write_effect);
    int added = 0;
    for (int round = 0; round < 5; ++round) {
        const pid_t relay = start_daemon(argv, options).value();
        const std::int64_t left = count("outbox");
        for (; added < kEvents * (round + 1) / 5; ++added) add_committed("k" + std::to_string(added % 3), added);
        // Kill it once it has sent something, in the middle of the rest.
        EXPECT_TRUE(eventually([&] { return count("outbox") < left + kEvents / 5; }));
        ::kill(relay, SIGKILL);
        ::waitpid(relay, nullptr, 0);
    }
    start_relay();
    EXPECT_TRUE(eventually([&] { return count("effect") >= kEvents && count("outbox") == 0; }));
    EXPECT_EQ(count("effect"), kEvents);
    for (int k = 0; k < 3; ++k) {
        const auto numbers = effects_of("k" + std::to_string(k));
        EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end())) << "key " << k;
    }
}

}  // namespace
}  // namespace atl::events
