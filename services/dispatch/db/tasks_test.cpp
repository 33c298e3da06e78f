#include "services/dispatch/db/tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using json::Json;

class TasksTest : public DispatchSchemaTest {
  protected:
    // A preparation's task at "leonardo".
    void add_task(pg::Connection& connection, const std::string& id) {
        const Json facility = {{"name", "leonardo"},
                               {"transport", {{"kind", "local"}}},
                               {"batch", {{"kind", "local"}}},
                               {"work_dir", work_dir("leonardo").string()}};
        auto transaction = pg::Transaction::begin(connection).value();
        ASSERT_TRUE(insert_facility(transaction, parse_facility(facility).value()).ok());
        ASSERT_TRUE(transaction.commit().ok());
        add_preparing_task(connection, id, "leonardo");
    }
};

TEST_F(TasksTest, ACommitThatLostItsAnswerCannotBeAppliedTwice) {
    auto connection = connect();
    add_task(connection, "t1");
    const auto leased = lease_task(connection, {std::chrono::seconds(60)}).value();
    ASSERT_TRUE(leased);
    const auto save = [&] {
        auto transaction = pg::Transaction::begin(connection).value();
        const Status saved = save_task(transaction, begin_attempt(leased->task), leased->lease.fence);
        return saved.ok() ? transaction.commit() : saved;
    };
    ASSERT_TRUE(save().ok());
    const Status again = save();
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, ErrorCode::kPreconditionFailed);
}

// A facility may be removed while a job that failed has yet to go on.
TEST_F(TasksTest, WhereAFacilityIsGoneNothingIsCleanedUpAndNothingElseIsDone) {
    auto connection = connect();
    add_task(connection, "t1");
    Task cleaning = cleaning_task("gone");
    cleaning.id = "c1";
    cleaning.preparation = "t1";
    Task here = cleaning_task("leonardo");
    here.id = "c2";
    here.preparation = cleaning.preparation =
        connection.query("SELECT preparation_id FROM tasks")->text(0, "preparation_id");
    auto transaction = pg::Transaction::begin(connection).value();
    const Status made = insert_tasks(transaction, {cleaning, here});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(transaction.query("SELECT facility FROM tasks WHERE kind = 'clean'")->text(0, "facility"), "leonardo");
    Task work = here;
    work.id = "p1";
    work.facility = "gone";
    work.params = PrepareParams{};
    const Status refused = insert_tasks(transaction, {work});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("\"gone\" was removed: register it again"), std::string::npos)
        << refused.error().message;
}

TEST_F(TasksTest, TheLogsOfATasksNewestAttemptsAreKept) {
    auto connection = connect();
    add_task(connection, "t1");
    const auto leased = lease_task(connection, {std::chrono::seconds(60)}).value();
    ASSERT_TRUE(leased);
    TaskChange change = begin_attempt(leased->task);
    for (std::int64_t number = 1; number <= 12; ++number) {
        ASSERT_TRUE(connection
                        .query("INSERT INTO attempts (task_id, number, batch_job_name, step, progress) VALUES ('t1', "
                               "$1, $2, 'failed', '{}') ON CONFLICT DO NOTHING",
                               {number, "n" + std::to_string(number)})
                        .ok());
        change.logs.push_back({"t1", number, Step::kFailed, 0, {{"stderr.log", "no"}}});
    }
    auto transaction = pg::Transaction::begin(connection).value();
    ASSERT_TRUE(save_task(transaction, change, leased->lease.fence).ok());
    const auto kept = transaction.query("SELECT min(number)::bigint AS first, count(*) AS n FROM attempt_logs").value();
    EXPECT_EQ(kept.integer(0, "n"), 10);
    EXPECT_EQ(kept.integer(0, "first"), 3);
}

// What tells of it before the commit makes a worker look, find nothing, and sleep.
TEST_F(TasksTest, WorkersHearOfTasksOnceTheyAreCommitted) {
    auto listener = connect();
    auto connection = connect();
    ASSERT_TRUE(listener.query(std::string("LISTEN ") + kTaskChannel).ok());
    const auto is_told = [&](std::chrono::seconds time) {
        return !listener.wait_for_notifications(time).value().empty();
    };
    add_task(connection, "t1");
    EXPECT_TRUE(is_told(std::chrono::minutes(3)));
    auto transaction = pg::Transaction::begin(connection).value();
    ASSERT_TRUE(request_cancel(transaction, {"t1"}, {}).ok());
    EXPECT_FALSE(is_told(std::chrono::seconds(0)));
    ASSERT_TRUE(transaction.commit().ok());
    EXPECT_TRUE(is_told(std::chrono::minutes(3)));
}

TEST_F(TasksTest, OfAPausedJobOnlyWhatMayBeInAQueueIsGoneOnWith) {
    auto connection = connect();
    add_task(connection, "t1");
    ASSERT_TRUE(connection
                    .query("INSERT INTO jobs (id, name, spec, base_digest, state, current_round, created_by) VALUES "
                           "('j', 'j', '{}', '', 'paused', 1, 'tester')")
                    .ok());
    ASSERT_TRUE(connection.query("UPDATE tasks SET job_id = 'j', preparation_id = NULL").ok());
    const auto is_leased = [&](const std::string& state, const std::string& step,
                               const std::string& continuation = {}) {
        Attempt attempt;
        attempt.continuation = continuation;
        auto transaction = pg::Transaction::begin(connection).value();
        EXPECT_TRUE(transaction.query("DELETE FROM attempts").ok());
        EXPECT_TRUE(transaction.query("UPDATE tasks SET state = $1, lease_until = '-infinity'", {state}).ok());
        EXPECT_TRUE(
            transaction
                .query("INSERT INTO attempts (task_id, number, batch_job_name, step, progress) VALUES ('t1', 1, "
                       "'n', $1, $2)",
                       {step, progress_json(attempt)})
                .ok());
        EXPECT_TRUE(transaction.commit().ok());
        return lease_task(connection, {std::chrono::seconds(60)}).value().has_value();
    };
    for (const char* step : {"submitting", "queued", "running", "collecting"})
        EXPECT_TRUE(is_leased("running", step)) << step;
    EXPECT_FALSE(is_leased("running", "staging"));
    for (const char* step : {"interrupted", "failed"}) EXPECT_FALSE(is_leased("pending", step)) << step;
    for (const char* step : {"interrupted", "done"}) EXPECT_TRUE(is_leased("pending", step, "17")) << step;
    EXPECT_FALSE(is_leased("pending", "failed", "17")) << "it was withdrawn";
}

TEST_F(TasksTest, ALeaseThatRanOutBeforeItsTaskWasReadGivesNothing) {
    auto connection = connect();
    add_task(connection, "t1");
    const auto slow = pg::take_lease(connection, task_leases(), {std::chrono::seconds(60)}).value();
    ASSERT_TRUE(slow);
    ASSERT_TRUE(connection.query("UPDATE tasks SET lease_until = '-infinity'").ok());
    const auto quick = lease_task(connection, {std::chrono::seconds(60)}).value();
    ASSERT_TRUE(quick);
    auto transaction = pg::Transaction::begin(connection).value();
    ASSERT_TRUE(save_task(transaction, give_up(quick->task, "the end"), quick->lease.fence).ok());
    ASSERT_TRUE(transaction.commit().ok());
    const auto late = read_leased_task(connection, slow->lease);
    ASSERT_TRUE(late.ok()) << late.error().message;
    EXPECT_FALSE(late->has_value()) << "of a task that is over";
}

TEST_F(TasksTest, WhoHasWorkAtAFacilityHasTurnsThereAndCleaningComesAfterWork) {
    auto connection = connect();
    add_task(connection, "bob0");
    for (const char* task : {"bob1", "bob2", "bob3", "bob4", "bob5", "vic0", "vic1", "vic2"})
        add_preparing_task(connection, task, "leonardo");
    ASSERT_TRUE(connection.query("UPDATE preparations SET created_by = substr(id, 3, 3)").ok());
    const auto make_due = [&](const std::string& what) {
        ASSERT_TRUE(connection.query("UPDATE tasks SET lease_until = '-infinity', " + what).ok());
    };
    const auto next = [&] {
        const auto leased = lease_task(connection, {std::chrono::seconds(60)}).value();
        return leased ? leased->task.id.substr(0, 3) : "nobody";
    };
    using Owners = std::vector<std::string>;
    make_due("next_step_at = now() - CASE WHEN id < 'c' THEN interval '30 s' ELSE interval '1 s' END");
    EXPECT_EQ((Owners{next(), next(), next(), next(), next(), next(), next(), next(), next(), next()}),
              (Owners{"bob", "vic", "bob", "vic", "bob", "vic", "bob", "bob", "bob", "nobody"}));
    make_due("kind = CASE WHEN id < 'c' THEN 'clean' ELSE kind END, params = '{}'");
    EXPECT_EQ((Owners{next(), next(), next(), next()}), (Owners{"vic", "vic", "vic", "bob"}));
    make_due("next_step_at = now() - interval '2 minutes'");
    EXPECT_EQ((Owners{next(), next(), next()}), (Owners{"vic", "bob", "vic"})) << "it does not wait for ever";
}

TEST_F(TasksTest, AFacilityHasSoManyStepsInHandAndNoMore) {
    constexpr int kStepsMax = 3;
    auto connection = connect();
    add_task(connection, "t0");
    for (int i = 1; i < 40; ++i)
        ASSERT_TRUE(connection
                        .query("INSERT INTO tasks (id, preparation_id, round, kind, facility, params, state, "
                               "attempts_max) SELECT $1, preparation_id, "
                               "round, 'clean', facility, '{}', state, attempts_max FROM tasks WHERE id = 't0'",
                               {"t" + std::to_string(i)})
                        .ok());
    std::atomic<int> in_hand = 0;
    std::atomic<int> most = 0;
    std::atomic<int> done = 0;
    const auto work = [&] {
        auto own = connect();
        while (done < 40) {
            const auto leased = lease_task(own, {std::chrono::seconds(60)}, {kStepsMax}).value();
            if (!leased) continue;
            const int count = ++in_hand;
            for (int seen = most; seen < count && !most.compare_exchange_weak(seen, count);) continue;
            EXPECT_TRUE(eventually([&] { return most > 1; }));
            std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the step
            --in_hand;
            auto transaction = pg::Transaction::begin(own).value();
            EXPECT_TRUE(save_task(transaction, give_up(leased->task, "the end"), leased->lease.fence).ok());
            EXPECT_TRUE(transaction.commit().ok());
            ++done;
        }
    };
    {
        std::vector<std::jthread> workers;
        for (int i = 0; i < 8; ++i) workers.emplace_back(work);
    }
    EXPECT_LE(most, kStepsMax);
    EXPECT_GT(most, 1);
}

TEST_F(TasksTest, ASilentFacilityHasOneStepInHandAndASlowOneGetsNoMore) {
    auto connection = connect();
    add_task(connection, "t1");
    ASSERT_TRUE(connection
                    .query("INSERT INTO tasks (id, preparation_id, round, kind, facility, params, state, "
                           "attempts_max) SELECT 't2', preparation_id, round, 'clean', facility, '{}', state, "
                           "attempts_max FROM tasks")
                    .ok());
    const auto count_leases = [&](const StepLimits& limits) {
        EXPECT_TRUE(connection.query("UPDATE tasks SET lease_until = '-infinity'").ok());
        int count = 0;
        while (lease_task(connection, {std::chrono::seconds(60)}, limits).value()) ++count;
        return count;
    };
    EXPECT_EQ(count_leases({2}), 2);
    EXPECT_EQ(count_leases({2, {"leonardo", "o'clock"}}), 0);
    EXPECT_EQ(count_leases({2, {"karolina"}, false}), 2);
    ASSERT_TRUE(connection.query("UPDATE facilities SET waiting_since = now()").ok());
    EXPECT_EQ(count_leases({2}), 1);
    EXPECT_EQ(count_leases({2, {}, false}), 0);
}

// A job that is cancelled computes until its scheduler is told, and looks at a slow site take many seconds each.
TEST_F(TasksTest, ACancellationWaitsForNoLooksAtItsFacility) {
    auto connection = connect();
    add_task(connection, "t0");
    for (const char* task : {"t1", "t2", "t3", "t4", "t5"}) add_preparing_task(connection, task, "leonardo");
    const auto next = [&](const StepLimits& limits) {
        const auto leased = lease_task(connection, {std::chrono::seconds(60)}, limits).value();
        return leased ? leased->task.id : "nobody";
    };
    const auto cancel = [&](const std::string& ids) {
        ASSERT_TRUE(connection
                        .query("UPDATE tasks SET cancel_requested = true, next_step_at = now() - interval '1 ms' WHERE "
                               "id IN (" +
                               ids + ")")
                        .ok());
    };
    ASSERT_TRUE(connection.query("UPDATE tasks SET next_step_at = now() - interval '1 minute'").ok());
    cancel("'t3'");
    EXPECT_EQ(next({2}), "t3") << "it comes first";
    EXPECT_NE(next({2}), "nobody");
    EXPECT_EQ(next({2}), "nobody");
    cancel("'t4', 't5'");
    const std::string more = next({2, {"leonardo"}});
    EXPECT_TRUE(more == "t4" || more == "t5") << more << ": one more than two, though looks are slow";
    EXPECT_EQ(next({2}), "nobody") << "but one";
}

TEST_F(TasksTest, WhatWasNotSubmittedIsCancelledThoughItsSiteIsLeftAlone) {
    auto connection = connect();
    add_task(connection, "t1");
    ASSERT_TRUE(connection
                    .script("UPDATE facilities SET waiting_since = now(), retry_at = now() + interval '1 h';"
                            "UPDATE tasks SET cancel_requested = true;"
                            "INSERT INTO attempts (task_id, number, batch_job_name, step, progress) VALUES ('t1', 1, "
                            "'n', 'running', '{}')")
                    .ok());
    EXPECT_FALSE(lease_task(connection, {std::chrono::seconds(60)}).value());
    ASSERT_TRUE(connection.query("UPDATE attempts SET step = 'staging'").ok());
    EXPECT_TRUE(lease_task(connection, {std::chrono::seconds(60)}).value());
    ASSERT_TRUE(connection.script("UPDATE tasks SET lease_until = '-infinity'; DELETE FROM attempts").ok());
    EXPECT_TRUE(lease_task(connection, {std::chrono::seconds(60)}).value());
}

TEST_F(TasksTest, WhatWaitsAtAFacilityIsTriedWhenSomebodyHasMendedIt) {
    auto connection = connect();
    add_task(connection, "t1");
    const auto is_due_again = [&](const std::optional<Waiting>& waiting) {
        Task task = begin_attempt(lease_task(connection, {std::chrono::seconds(60)}).value().value().task).task;
        task.attempt->waiting = waiting;
        auto transaction = pg::Transaction::begin(connection).value();
        const pg::Rows fence = transaction.query("SELECT fence FROM tasks").value();
        EXPECT_TRUE(save_task(transaction, {task, {}, 1'800'000}, fence.integer(0, "fence")).ok());
        EXPECT_TRUE(transaction.query("UPDATE facilities SET retry_at = now() + interval '1 h'").ok());
        EXPECT_TRUE(transaction.commit().ok());
        EXPECT_FALSE(lease_task(connection, {std::chrono::seconds(60)}).value());
        EXPECT_TRUE(try_again(connection, "leonardo").ok());
        const bool is_due = lease_task(connection, {std::chrono::seconds(60)}).value().has_value();
        EXPECT_TRUE(
            connection.query("UPDATE tasks SET state = 'pending', lease_until = '-infinity', next_step_at = now()")
                .ok());
        return is_due;
    };
    EXPECT_TRUE(is_due_again(Waiting{"Disk quota exceeded", 1, 2}));
    EXPECT_FALSE(is_due_again({})) << "nothing stands in its way";
}

TEST_F(TasksTest, WhatManyTasksMeetInOneOutageOfAFacilityCountsOnce) {
    auto connection = connect();
    add_task(connection, "t1");
    const auto count_after_silence = [&](int answers) {
        for (int i = 0; i < answers; ++i)
            EXPECT_TRUE(record_answer(connection, "leonardo", "no route", 60000, 600000).ok());
        return connection.query("SELECT unknown_answers AS n FROM facilities").value().integer(0, "n");
    };
    EXPECT_EQ(count_after_silence(8), 1);
    ASSERT_TRUE(connection.query("UPDATE facilities SET retry_at = now()").ok());
    EXPECT_EQ(count_after_silence(8), 2);
}

}  // namespace
}  // namespace atl::dispatch
