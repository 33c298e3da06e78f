#include "services/dispatch/db/deletion.h"

#include <gtest/gtest.h>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/history.h"
#include "services/dispatch/db/job_views.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

// Rows of every table that hangs on a job, of jobs and preparations that ended some days ago.
class DeletionTest : public DispatchSchemaTest {
  protected:
    void SetUp() override {
        DispatchSchemaTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        ASSERT_TRUE(connect()
                        .script("INSERT INTO facilities (name, spec) VALUES ('leonardo', '{\"work_dir\": \"/work\"}'), "
                                "('karolina', '{}');")
                        .ok());
    }
    // A job with two rounds, of each a training with three attempts, its last one lost or done.
    void add_job(const std::string& id, const std::string& state, int ended_days) {
        const bool ended = state != "running";
        const auto added = connect().script(
            "INSERT INTO jobs (id, name, spec, base_digest, state, current_round, created_by, finished_at) VALUES ('" +
            id + "', 'n', '{\"participants\": [{\"facility\": \"leonardo\"}]}', 'b', '" + state + "', 2, 'ada', " +
            (ended ? "now() - interval '" + std::to_string(ended_days) + " days'" : "NULL") +
            ");"
            "INSERT INTO rounds (job_id, number, state, base_digest) SELECT '" +
            id +
            "', n, 'closed', 'b' FROM generate_series(1, 2) n;"
            "INSERT INTO job_events (job_id, number, type, data) SELECT '" +
            id +
            "', n, 't', '{}' FROM generate_series(1, 9) n;"
            "INSERT INTO tasks (id, job_id, round, kind, facility, params, state, attempts_max) SELECT '" +
            id + "-' || n, '" + id + "', n, 'train', 'leonardo', '{}', '" + (ended ? "done" : "running") +
            "', 3 FROM generate_series(1, 2) n;"
            "INSERT INTO attempts (task_id, number, batch_job_name, step, progress) SELECT '" +
            id + "-' || t, n, '" + id +
            "-' || t || n, 'done', '{}' FROM generate_series(1, 2) t, generate_series(1, 3) n;"
            "INSERT INTO ended_tasks VALUES ('" +
            id + "', 'train', 'done', 2)");
        ASSERT_TRUE(added.ok()) << describe(added.error());
    }
    void add_preparation(const std::string& id, const std::string& state, int ended_days) {
        ASSERT_TRUE(connect()
                        .script("INSERT INTO preparations (id, spec, created_by) VALUES ('" + id +
                                "', '{}', 'ada');"
                                "INSERT INTO tasks (id, preparation_id, round, kind, facility, params, state, "
                                "attempts_max, finished_at) VALUES ('" +
                                id + "-t', '" + id + "', 0, 'prepare', 'karolina', '{}', '" + state + "', 3, now() - " +
                                std::to_string(ended_days) +
                                " * interval '1 day');"
                                "INSERT INTO attempts (task_id, number, batch_job_name, step, progress) VALUES ('" +
                                id + "-t', 1, '" + id + "', 'done', '{}')")
                        .ok());
    }
    std::int64_t count(const std::string& table) {
        return connect().query("SELECT count(*) AS n FROM " + table).value().integer(0, "n");
    }
    std::int64_t rows_of_all() {
        std::int64_t rows = 0;
        for (const char* table : {"jobs", "rounds", "tasks", "attempts", "ended_tasks", "job_events", "preparations"})
            rows += count(table);
        return rows;
    }
    Result<Json> delete_one(const std::string& id) {
        auto connection = connect();
        auto transaction = pg::Transaction::begin(connection).value();
        ATOLL_TRY(Json left, delete_preparation(transaction, id));
        ATOLL_RETURN_IF_ERROR(transaction.commit());
        return left;
    }
    Status remove_facility(const std::string& name) {
        auto connection = connect();
        auto transaction = pg::Transaction::begin(connection).value();
        ATOLL_RETURN_IF_ERROR(delete_facility(transaction, name));
        return transaction.commit();
    }
    pg::Pool& pool() {
        if (!pool_) pool_ = std::make_unique<pg::Pool>(conninfo_, "dispatch", 2);
        return *pool_;
    }

  private:
    std::unique_ptr<pg::Pool> pool_;
};

TEST_F(DeletionTest, AJobGoesWithAllItsRowsAndSaysWhatStandsAtTheSites) {
    add_job("a", "completed", 1);
    const std::int64_t others = rows_of_all();
    add_job("b", "failed", 1);
    const auto left = delete_job(pool(), "b");
    ASSERT_TRUE(left.ok()) << describe(left.error());
    EXPECT_EQ(*left, Json::array({{{"facility", "leonardo"}, {"work_dir", "/work"}, {"tasks", {"b-1", "b-2"}}}}));
    EXPECT_EQ(rows_of_all(), others);
    EXPECT_EQ(delete_job(pool(), "b").error().code, ErrorCode::kNotFound);
}

TEST_F(DeletionTest, AJobThatGoesOnOrIsCleanedUpAfterStaysWhole) {
    add_job("b", "running", 0);
    const std::int64_t all = rows_of_all();
    EXPECT_EQ(delete_job(pool(), "b").error().code, ErrorCode::kConflict);
    ASSERT_TRUE(connect()
                    .script("UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE id = 'b';"
                            "UPDATE tasks SET state = 'done' WHERE id = 'b-1'")
                    .ok());
    const auto cleaning = delete_job(pool(), "b");
    ASSERT_FALSE(cleaning.ok());
    EXPECT_EQ(cleaning.error().code, ErrorCode::kConflict);
    EXPECT_NE(cleaning.error().message.find("leonardo"), std::string::npos) << cleaning.error().message;
    EXPECT_EQ(rows_of_all(), all);
}

// The batch job of a cancelled job runs as long as its scheduler takes no scancel: all that speaks of the job says so.
TEST_F(DeletionTest, WhatACancelledJobStillHasInAQueueIsShownWithWhatStandsInTheWay) {
    add_job("b", "running", 0);
    const auto waits = [&] {
        auto connection = connect();
        return job_list(connection, "", 10).value().at(0).at("waits");
    };
    ASSERT_TRUE(connect()
                    .script("UPDATE jobs SET state = 'cancelled', finished_at = '2026-03-01T12:00:00Z' WHERE id = 'b';"
                            "UPDATE tasks SET cancel_requested = true, state = CASE WHEN id = 'b-1' THEN 'done' ELSE "
                            "'running' END WHERE job_id = 'b';"
                            "UPDATE attempts SET step = 'running' WHERE task_id = 'b-2';"
                            "INSERT INTO tasks (id, job_id, round, kind, facility, params, state, attempts_max) VALUES "
                            "('b-c', 'b', 0, 'clean', 'karolina', '{}', 'pending', 1)")
                    .ok());
    Json shown = {{"facility", "leonardo"}, {"reason", "its batch job is about to be cancelled"}, {"cancelling", true}};
    shown["since"] = "2026-03-01T12:00:00.000Z";
    EXPECT_EQ(waits(), Json::array({shown}));
    const std::string why = "Slurm of leonardo does not answer: scancel gave no answer within 8 s: is slurmctld up?";
    ASSERT_TRUE(connect()
                    .query("UPDATE facilities SET batch_silence = $1, batch_silent_since = '2026-03-01T12:00:08Z' "
                           "WHERE name = 'leonardo'",
                           {why})
                    .ok());
    shown.update({{"reason", "its batch job is being cancelled and may still run: " + why},
                  {"since", "2026-03-01T12:00:08.000Z"}});
    EXPECT_EQ(waits(), Json::array({shown}));
    EXPECT_EQ(delete_job(pool(), "b").error().message,
              "a task at leonardo is still under way (train): " + why +
                  "; try again when it has ended, or give it up: `atoll facility set leonardo --give-up-tasks`");
    const auto wait_to_submit = [&](std::int64_t since_ms) {
        const Json progress = {{"waiting", {{"reason", "sbatch: Invalid qos"}, {"since_ms", 1000}, {"next_ms", 0}}},
                               {"no_queue_since_ms", since_ms}};
        ASSERT_TRUE(
            connect()
                .query("UPDATE attempts SET step = 'submitting', progress = $1 WHERE task_id = 'b-2'", {progress})
                .ok());
    };
    wait_to_submit(1000);
    EXPECT_EQ(waits().at(0).at("reason"), "it is being cancelled; no batch job of it is in the queue");
    wait_to_submit(0);
    EXPECT_EQ(waits().at(0).at("reason"), "its batch job is being cancelled and may still run: " + why)
        << "an answer of sbatch was lost";
    ASSERT_TRUE(connect().query("UPDATE tasks SET state = 'cancelled' WHERE id = 'b-2'").ok());
    EXPECT_EQ(waits(), Json::array());
}

// What a process that is killed on the way has done: the history is gone, the rest is there as it was.
TEST_F(DeletionTest, AJobLosesItsHistoryFirstAndThenAllElseAtOnce) {
    add_job("b", "completed", 1);
    auto holder = connect();
    auto held = pg::Transaction::begin(holder).value();
    ASSERT_TRUE(held.query("LOCK TABLE rounds IN ACCESS EXCLUSIVE MODE").ok());  // near the end of the way
    auto hurried = pg::Pool(conninfo_ + " options='-c statement_timeout=300'", "dispatch", 2);
    EXPECT_EQ(delete_job(hurried, "b").error().code, ErrorCode::kUnavailable);
    ASSERT_TRUE(held.commit().ok());
    EXPECT_EQ(count("job_events"), 0);
    EXPECT_EQ(count("attempts"), 2) << "the newest of each task";
    EXPECT_EQ(count("tasks"), 2);
    EXPECT_EQ(count("rounds"), 2);
    EXPECT_EQ(count("jobs"), 1);
    EXPECT_TRUE(delete_job(pool(), "b").ok()) << "it can be done again";
    EXPECT_EQ(rows_of_all(), 0);
}

TEST_F(DeletionTest, APreparationGoesWhenItHasEnded) {
    add_preparation("p", "running", 0);
    EXPECT_EQ(delete_one("p").error().code, ErrorCode::kConflict);
    ASSERT_TRUE(connect().query("UPDATE tasks SET state = 'failed'").ok());
    EXPECT_EQ(*delete_one("p"), Json::array({{{"facility", "karolina"}, {"work_dir", nullptr}, {"tasks", {"p-t"}}}}));
    EXPECT_EQ(rows_of_all(), 0);
    EXPECT_EQ(delete_one("p").error().code, ErrorCode::kNotFound);
}

TEST_F(DeletionTest, AFacilityGoesWhenNothingUnderWayNeedsIt) {
    add_job("b", "completed", 1);
    add_job("c", "running", 0);
    const Status needed = remove_facility("leonardo");
    ASSERT_FALSE(needed.ok());
    EXPECT_EQ(needed.error().code, ErrorCode::kConflict);
    EXPECT_NE(needed.error().message.find("(c)"), std::string::npos) << needed.error().message;
    ASSERT_TRUE(connect().query("UPDATE jobs SET state = 'failed', finished_at = now() WHERE id = 'c'").ok());
    const Status busy = remove_facility("leonardo");
    ASSERT_FALSE(busy.ok());
    EXPECT_NE(busy.error().message.find("2 tasks"), std::string::npos) << busy.error().message;
    ASSERT_TRUE(connect().query("UPDATE tasks SET state = 'done'").ok());
    ASSERT_TRUE(remove_facility("leonardo").ok());
    EXPECT_EQ(count("tasks WHERE facility = 'leonardo'"), 4) << "the history stays";
    EXPECT_EQ(remove_facility("leonardo").error().code, ErrorCode::kNotFound);
    EXPECT_TRUE(delete_job(pool(), "b")->at(0).at("work_dir").is_null());
}

TEST_F(DeletionTest, ATaskOfAFacilityThatIsGoneIsRefused) {
    ASSERT_TRUE(remove_facility("karolina").ok());
    add_preparation("p", "done", 0);
    auto connection = connect();
    auto transaction = pg::Transaction::begin(connection).value();
    Task task;
    task.id = "late";
    task.preparation = "p";
    task.facility = "karolina";
    task.params = PrepareParams{};
    EXPECT_EQ(insert_task(transaction, task).error().code, ErrorCode::kNotFound);
}

TEST_F(DeletionTest, WhatEndedLongAgoGoesWhereItIsNotKeptForGood) {
    add_job("old", "completed", 400);
    add_job("new", "completed", 300);
    add_job("running", "running", 0);
    add_job("cleaned", "cancelled", 400);
    ASSERT_TRUE(connect().query("UPDATE tasks SET state = 'pending' WHERE id = 'cleaned-1'").ok());
    add_preparation("p-old", "done", 400);
    add_preparation("p-new", "failed", 300);
    const auto none = [](const std::string&, std::int64_t) {};
    ASSERT_TRUE(prune_history(pool(), {1000, 0}, {}, none).ok());
    EXPECT_EQ(count("jobs"), 4) << "by default they stay";
    auto connection = connect();
    const Json prunable = prunable_history(connection, {90, 365}).value();
    EXPECT_EQ(prunable["jobs"].size(), 1U) << prunable;
    EXPECT_EQ(prunable["jobs"][0]["id"], "old");
    EXPECT_EQ(prunable["preparations"][0]["id"], "p-old");
    EXPECT_EQ(prunable["events"], 27);
    EXPECT_EQ(prunable["attempts"], 12);
    std::map<std::string, std::int64_t> pruned;
    ASSERT_TRUE(prune_history(pool(), {90, 365}, {}, [&](const std::string& table, std::int64_t rows) {
                    pruned[table] += rows;
                }).ok());
    EXPECT_EQ(pruned["jobs"], 1);
    EXPECT_EQ(pruned["preparations"], 1);
    EXPECT_EQ(count("jobs"), 3);
    EXPECT_EQ(count("jobs WHERE id = 'old'"), 0);
    EXPECT_EQ(count("preparations"), 1);
    EXPECT_EQ(count("job_events"), 9) << "of the one that runs";
}

}  // namespace
}  // namespace atl::dispatch
