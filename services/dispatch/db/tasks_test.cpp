#include "services/dispatch/db/tasks.h"

#include <gtest/gtest.h>

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
        Task task;
        task.id = id;
        task.preparation = "p-" + id;
        task.facility = "leonardo";
        task.params = PrepareParams{};
        auto transaction = pg::Transaction::begin(connection).value();
        ASSERT_TRUE(insert_facility(transaction, parse_facility(facility).value()).ok());
        ASSERT_TRUE(transaction
                        .query("INSERT INTO preparations (id, spec, created_by) VALUES ($1, '{}', 'tester')",
                               {task.preparation})
                        .ok());
        ASSERT_TRUE(insert_task(transaction, task).ok());
        ASSERT_TRUE(transaction.commit().ok());
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

// What tells of it before the commit makes a worker look, find nothing, and sleep.
TEST_F(TasksTest, WorkersHearOfTasksOnceTheyAreCommitted) {
    auto listener = connect();
    auto connection = connect();
    ASSERT_TRUE(listener.query(std::string("LISTEN ") + kTaskChannel).ok());
    const auto is_told = [&](std::chrono::seconds time) {
        return !listener.wait_for_notifications(time).value().empty();
    };
    add_task(connection, "t1");
    EXPECT_TRUE(is_told(std::chrono::seconds(30)));
    auto transaction = pg::Transaction::begin(connection).value();
    ASSERT_TRUE(request_cancel(transaction, {"t1"}, {}).ok());
    EXPECT_FALSE(is_told(std::chrono::seconds(0)));
    ASSERT_TRUE(transaction.commit().ok());
    EXPECT_TRUE(is_told(std::chrono::seconds(30)));
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

TEST_F(TasksTest, WhatManyTasksMeetInOneOutageOfAFacilityCountsOnce) {
    auto connection = connect();
    add_task(connection, "t1");
    const auto count_after_silence = [&](int answers) {
        for (int i = 0; i < answers; ++i) EXPECT_TRUE(record_answer(connection, "leonardo", false, 60000, 600000).ok());
        return connection.query("SELECT unknown_answers AS n FROM facilities").value().integer(0, "n");
    };
    EXPECT_EQ(count_after_silence(8), 1);
    ASSERT_TRUE(connection.query("UPDATE facilities SET retry_at = now()").ok());
    EXPECT_EQ(count_after_silence(8), 2);
}

}  // namespace
}  // namespace atl::dispatch
