#include "services/dispatch/db/history.h"

#include <gtest/gtest.h>

#include <map>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/federation.h"
#include "services/dispatch/db/job_views.h"
#include "services/dispatch/db/jobs.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using json::Json;

// What the coordinator does all the time, after years: forty jobs of a hundred rounds, of which one still runs.
class HistoryTest : public DispatchSchemaTest {
  protected:
    static constexpr int kTasks = 1'000'000;

    void SetUp() override {
        DispatchSchemaTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        connection_.emplace(connect());
    }
    // Of each job 250 tasks a round and the last round's still to be done in the last job; foreign keys are not checked
    // while they come in.
    void add_history() {
        const Json facility = {{"name", "leonardo"},
                               {"transport", {{"kind", "local"}}},
                               {"batch", {{"kind", "local"}}},
                               {"work_dir", work_dir("leonardo").string()}};
        const Json spec = to_json(parse_job_spec({{"name", "n"},
                                                  {"model", {{"name", "tiny"}, {"version", "base"}}},
                                                  {"participants", {{{"facility", "leonardo"}, {"dataset", "it"}}}},
                                                  {"rounds", 100},
                                                  {"training", {{"steps", 3}}}})
                                      .value());
        auto transaction = pg::Transaction::begin(*connection_).value();
        ASSERT_TRUE(insert_facility(transaction, parse_facility(facility).value()).ok());
        ASSERT_TRUE(transaction.commit().ok());
        const auto filled = connection_->script(
            "SET statement_timeout = '5min'; SET session_replication_role = replica;"
            "INSERT INTO jobs (id, name, spec, base_digest, state, current_round, created_by, finished_at) SELECT 'j' "
            "|| "
            "j, 'n', '" +
            spec.dump() +
            "', repeat('b', 64), CASE j WHEN 40 THEN 'running' ELSE 'completed' END, 100, 't', CASE j WHEN 40 THEN "
            "NULL "
            "ELSE now() END FROM generate_series(1, 40) j;"
            "INSERT INTO rounds (job_id, number, state, base_digest, evaluated) SELECT 'j' || j, r, CASE WHEN j = 40 "
            "AND "
            "r = 100 THEN 'training' ELSE 'closed' END, repeat('b', 64), true FROM generate_series(1, 40) j, "
            "generate_series(0, 100) r;"
            "INSERT INTO tasks (id, job_id, round, kind, facility, params, state, attempts_max, next_step_at) SELECT "
            "'t' "
            "|| n, 'j' || (1 + (n - 1) / 25000), 1 + (n - 1) % 25000 / 250, 'clean', 'leonardo', '{}', 'done', 1, "
            "now() "
            "FROM generate_series(1, " +
            std::to_string(kTasks) +
            ") n;"
            "UPDATE tasks SET state = 'pending' WHERE job_id = 'j40' AND round = 100;"
            "INSERT INTO ended_tasks SELECT 'j' || j, 'clean', 'done', 25000 FROM generate_series(1, 39) j;"
            "SET session_replication_role = origin; SET statement_timeout = '30s'; ANALYZE");
        ASSERT_TRUE(filled.ok()) << describe(filled.error());
    }
    // How many rows of all tables this connection has read so far.
    std::int64_t rows_read() {
        return connection_
            ->query(
                "SELECT coalesce(sum(seq_tup_read), 0)::bigint + coalesce(sum(idx_tup_fetch), 0)::bigint AS n FROM "
                "pg_stat_xact_user_tables WHERE schemaname = 'dispatch'")
            .value()
            .integer(0, "n");
    }
    // Of what `work` reads, in a transaction that is rolled back.
    std::int64_t rows_read_by(const std::function<void(pg::Transaction&)>& work) {
        auto transaction = pg::Transaction::begin(*connection_).value();
        const std::int64_t before = rows_read();
        work(transaction);
        return rows_read() - before;
    }
    std::int64_t count(const std::string& table) {
        return connection_->query("SELECT count(*) AS n FROM " + table).value().integer(0, "n");
    }

    std::optional<pg::Connection> connection_;
};

TEST_F(HistoryTest, WhatIsDoneOftenReadsNoFinishedTasks) {
    ASSERT_NO_FATAL_FAILURE(add_history());
    constexpr std::int64_t kUnfinished = 250;
    const Topics topics("test.");
    EXPECT_LT(rows_read_by([](pg::Transaction& transaction) {
                  std::map<std::string, std::int64_t> counts;
                  for (const StateCount& one : count_by_state(transaction.connection()).value())
                      counts[one.what + " " + one.state] = one.count;
                  EXPECT_EQ(counts.size(), 10U);
                  EXPECT_EQ(counts["tasks pending"], 250);
                  EXPECT_EQ(counts["tasks done"], 975'000);
                  EXPECT_EQ(counts["jobs running"], 1);
                  EXPECT_EQ(counts["jobs completed"], 39);
              }),
              kUnfinished + 500);
    EXPECT_LT(rows_read_by([](pg::Transaction& transaction) {
                  const auto state = read_federation_state(transaction.connection());
                  EXPECT_TRUE(state.ok()) << describe(state.error());
              }),
              20 * kUnfinished);
    for (const char* job : {"j1", "j40"})
        EXPECT_LT(rows_read_by(
                      [&](pg::Transaction& transaction) { EXPECT_TRUE(job_view(transaction.connection(), job).ok()); }),
                  2 * kUnfinished + 200)
            << job << ": what waits, and how many there are";
    EXPECT_LT(rows_read_by([](pg::Transaction& transaction) {
                  EXPECT_TRUE(lease_task(transaction.connection(), {std::chrono::seconds(60)}).value());
              }),
              6 * kUnfinished);
    EXPECT_LT(rows_read_by([](pg::Transaction& transaction) {
                  EXPECT_TRUE(time_to_next_task(transaction.connection(), std::chrono::seconds(1)).ok());
              }),
              2 * kUnfinished);
    EXPECT_LT(rows_read_by([](pg::Transaction& transaction) { EXPECT_TRUE(late_jobs(transaction.connection()).ok()); }),
              200)
        << "rounds that are closed and evaluated";
    EXPECT_LT(rows_read_by([](pg::Transaction& transaction) {
                  EXPECT_EQ(lock_job(transaction, "j40").value().tasks.size(), 250U);
              }),
              4 * kUnfinished)
        << "earlier rounds of the same job";
    EXPECT_LT(rows_read_by(
                  [](pg::Transaction& transaction) { EXPECT_TRUE(claim_output_model(transaction, "another").ok()); }),
              50)
        << "there are forty jobs";
    EXPECT_LT(rows_read_by([](pg::Transaction& transaction) {
                  EXPECT_TRUE(tasks_at(transaction.connection(), "no-such-preparation", "leonardo").ok());
                  EXPECT_EQ(tasks_with_logs(transaction.connection(), "j40", "t1000000").value().size(), 0U)
                      << "cleans";
              }),
              10);
}

TEST_F(HistoryTest, EventsAndEarlierAttemptsOfJobsThatEndedLongAgoGoAndNothingElse) {
    ASSERT_TRUE(
        connection_
            ->script(
                "INSERT INTO facilities (name, spec) VALUES ('leonardo', '{}');"
                "INSERT INTO jobs (id, name, spec, base_digest, state, current_round, created_by, finished_at) SELECT "
                "j, 'n', '{}', 'b', 'completed', 1, 't', now() - d * interval '1 day' FROM (VALUES ('old', 91), "
                "('new', 89), ('running', NULL)) AS of_age (j, d);"
                "INSERT INTO job_events (job_id, number, type, data) SELECT j, n, 't', '{}' FROM (VALUES ('old', "
                "200000), ('new', 3), ('running', 3)) AS of_job (j, c), generate_series(1, c) n;"
                "INSERT INTO tasks (id, job_id, round, kind, facility, params, state, attempts_max) SELECT j || '-t', "
                "j, 1, 'train', 'leonardo', '{}', 'done', 3 FROM (VALUES ('old'), ('new')) AS jobs (j);"
                "INSERT INTO attempts (task_id, number, batch_job_name, step, progress) SELECT j || '-t', n, j || n, "
                "'done', '{}' FROM (VALUES ('old'), ('new')) AS jobs (j), generate_series(1, 3) n; ANALYZE")
            .ok());
    pg::Pool pool(conninfo_, "dispatch", 2);
    std::map<std::string, std::int64_t> pruned;
    std::int64_t most = 0;
    const auto prune = [&] {
        return prune_history(pool, {90, 0}, {}, [&](const std::string& table, std::int64_t rows) {
            pruned[table] += rows;
            most = std::max(most, rows);
        });
    };
    ASSERT_TRUE(prune().ok());
    EXPECT_EQ(pruned["job_events"], 200'000);
    EXPECT_EQ(pruned["attempts"], 2);
    EXPECT_LE(most, 5000);
    EXPECT_EQ(count("job_events"), 6);
    EXPECT_EQ(count("attempts WHERE task_id = 'old-t' AND number = 3"), 1);
    EXPECT_EQ(count("attempts"), 4);
    EXPECT_EQ(count("jobs WHERE pruned"), 1);
    pruned.clear();
    ASSERT_TRUE(prune().ok());
    EXPECT_TRUE(pruned.empty()) << "what is pruned is not looked at again";
}

}  // namespace
}  // namespace atl::dispatch
