#include "services/dispatch/events/event_feed.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <vector>

#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using std::chrono::steady_clock;

TEST(WaitingPlacesTest, APlaceIsFreeAgainHoweverItsQuestionEnds) {
    WaitingPlaces places(3, 1);
    try {
        EventFeed::Query query;
        query.place.emplace(places.take("eve").value());
        EXPECT_FALSE(places.take("eve").ok()) << "hers is taken";
        const EventFeed::Query moved = std::move(query);
        EXPECT_FALSE(places.take("eve").ok());
        throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
    }
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(places.take("eve").ok());
    std::vector<WaitingPlaces::Place> all;
    for (const char* caller : {"ada", "bob", "eve"}) all.push_back(places.take(caller).value());
    EXPECT_EQ(places.take("carl").error().code, ErrorCode::kResourceExhausted);
}

class EventFeedTest : public DispatchSchemaTest {
  protected:
    void SetUp() override {
        DispatchSchemaTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        connection_.emplace(connect());
        for (const char* job : {"busy", "quiet"})
            query(std::string("INSERT INTO jobs (id, name, spec, base_digest, state, current_round, created_by) VALUES "
                              "('") +
                  job + "', 'n', '{}', 'b', 'running', 0, 't')");
    }
    pg::Rows query(const std::string& sql) { return connection_->query(sql).value(); }
    void record(const std::string& job) {
        auto transaction = pg::Transaction::begin(*connection_).value();
        ASSERT_TRUE(record_events(transaction, topics_, job, {{"atoll.task.progress.v1", {{"step", 1}}}}).ok());
        ASSERT_TRUE(transaction.commit().ok());
    }
    // A question that waits for an hour; its answer's status or number of events.
    EventFeed::Query ask_for(const std::string& job, std::function<void(const Result<EventPage>&)> answer) {
        return {.job = job, .deadline = steady_clock::now() + std::chrono::hours(1), .answer = std::move(answer)};
    }
    // Reads of events by connections that have ended; a connection's numbers are known when it has.
    std::int64_t reads() {
        EXPECT_TRUE(eventually([&] {
            return query(
                       "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
                       "pg_backend_pid()")
                .empty();
        }));
        query("SELECT pg_stat_clear_snapshot()");
        return query(
                   "SELECT coalesce(seq_scan, 0) + coalesce(idx_scan, 0) AS n FROM pg_stat_user_tables WHERE relname "
                   "= 'job_events'")
            .integer(0, "n");
    }

    Topics topics_{"test."};
    std::optional<pg::Connection> connection_;
};

TEST_F(EventFeedTest, APageEndsOnceItHasItsBytesAndNoEventIsLost) {
    query(
        "INSERT INTO job_events (job_id, number, type, data) SELECT 'busy', i, 'some', jsonb_build_object('text', "
        "repeat('x', CASE WHEN i BETWEEN 41 AND 80 THEN 500000 ELSE 10 END)) FROM generate_series(1, 200) i");
    std::int64_t last = 0, largest = 0;
    for (int pages = 0; last < 200 && pages < 50; ++pages) {
        const auto page = read_events(*connection_, "busy", last, 100);
        ASSERT_TRUE(page.ok());
        std::int64_t bytes = 0;
        for (const json::Json& item : page->items) {
            EXPECT_EQ(item.at("number"), ++last);
            bytes += std::ssize(item.at("data").dump());
        }
        EXPECT_EQ(page->last, last);
        EXPECT_LE(page->items.size(), 100U);
        largest = std::max(largest, bytes);
    }
    EXPECT_EQ(last, 200);
    EXPECT_GT(largest, 4'000'000);
    EXPECT_LT(largest, 5'000'000);
}

TEST_F(EventFeedTest, EventsOfAnotherJobCauseNoQueryForThoseWhoWait) {
    constexpr int kWatchers = 50;
    const std::int64_t before = reads();
    std::atomic<int> given = 0;
    {
        EventFeed feed(conninfo_, "dispatch");
        std::atomic<bool> is_answered = false;
        for (int i = 0; i < kWatchers; ++i) {
            auto query = ask_for("quiet", [&](const auto&) { ++given; });
            query.limit = 1 + i;  // each is a look of its own
            feed.ask(std::move(query));
        }
        for (int i = 0; i < 20; ++i) {
            is_answered = false;
            auto query = ask_for("busy", [&](const Result<EventPage>& page) { is_answered = page.ok(); });
            query.after = i;
            feed.ask(std::move(query));
            record("busy");
            ASSERT_TRUE(eventually([&] { return is_answered.load(); })) << i;
        }
        EXPECT_EQ(given, 0);
        record("quiet");
        EXPECT_TRUE(eventually([&] { return given == kWatchers; }));
    }
    // Each who waits for the quiet job has a look when it comes and one when its event does; two for each event of the
    // busy one.
    EXPECT_LE(reads() - before, 2 * kWatchers + 2 * 20);
}

TEST_F(EventFeedTest, AllWhoAskTheSameAreAnsweredFromOneLook) {
    constexpr int kWatchers = 50;
    const std::int64_t before = reads();
    std::atomic<int> given = 0;
    {
        EventFeed feed(conninfo_, "dispatch");
        for (int i = 0; i < kWatchers; ++i)
            feed.ask(
                ask_for("quiet", [&](const auto& page) { given += page.ok() && page->items.size() == 3 ? 1 : 0; }));
        auto transaction = pg::Transaction::begin(*connection_).value();
        const std::vector<DomainEvent> events(3, {"atoll.task.progress.v1", {{"step", 1}}});
        ASSERT_TRUE(record_events(transaction, topics_, "quiet", events).ok());
        ASSERT_TRUE(transaction.commit().ok());
        EXPECT_TRUE(eventually([&] { return given == kWatchers; }));
    }
    EXPECT_LE(reads() - before, 10) << "they come while it looks, in a few batches";
}

TEST_F(EventFeedTest, WhoeverWaitsInVainIsAnsweredInTimeWithoutAQuery) {
    const std::int64_t before = reads();
    std::atomic<bool> is_empty = false;
    {
        EventFeed feed(conninfo_, "dispatch");
        auto query = ask_for("quiet", [&](const Result<EventPage>& page) {
            is_empty = page.ok() && page->items.empty() && page->last == 7;
        });
        query.after = 7;
        query.deadline = steady_clock::now() + std::chrono::milliseconds(200);
        feed.ask(std::move(query));
        EXPECT_TRUE(eventually([&] { return is_empty.load(); }));
    }
    EXPECT_EQ(reads() - before, 1);
}

TEST_F(EventFeedTest, NoMoreWaitThanCan) {
    EventFeed feed(conninfo_, "dispatch", 2);
    std::atomic<int> answered = 0;
    std::optional<Error> refused;
    for (int i = 0; i < 2; ++i) feed.ask(ask_for("quiet", [&](const auto& page) { answered += page.ok() ? 1 : 0; }));
    feed.ask(ask_for("busy", [&](const Result<EventPage>& page) {
        if (!page.ok()) refused = page.error();
    }));
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->code, ErrorCode::kResourceExhausted);
    EXPECT_NE(refused->message.find("(2)"), std::string::npos) << refused->message;
    record("quiet");
    EXPECT_TRUE(eventually([&] { return answered == 2; }));
}

TEST_F(EventFeedTest, OneCallerHas64OfThePlaces) {
    EventFeed feed(conninfo_, "dispatch");
    std::atomic<int> answered = 0, refused = 0;
    const auto ask_as = [&](const std::string& caller, const std::string& job) {
        auto query = ask_for(job, [&](const Result<EventPage>& page) { ++(page.ok() ? answered : refused); });
        query.caller = caller;
        feed.ask(std::move(query));
    };
    for (int i = 0; i < 70; ++i) ask_as("eve", "quiet");
    EXPECT_EQ(refused, 6);
    ask_as("ada", "quiet");
    EXPECT_EQ(refused, 6) << "another has places";
    record("quiet");
    ASSERT_TRUE(eventually([&] { return answered == 65; }));
    ask_as("eve", "busy");
    EXPECT_EQ(refused, 6) << "theirs are free again";
}

TEST_F(EventFeedTest, AFeedThatNobodyAsksHoldsNoConnection) {
    EventFeed feed(conninfo_, "dispatch");
    std::atomic<bool> is_answered = false;
    auto query = ask_for("quiet", [&](const auto&) { is_answered = true; });
    query.deadline = steady_clock::now();
    feed.ask(std::move(query));
    ASSERT_TRUE(eventually([&] { return is_answered.load(); }));
    reads();  // waits until it is gone
    is_answered = false;
    feed.ask(ask_for("quiet", [&](const auto&) { is_answered = true; }));
    record("quiet");
    EXPECT_TRUE(eventually([&] { return is_answered.load(); }));
}

}  // namespace
}  // namespace atl::dispatch
