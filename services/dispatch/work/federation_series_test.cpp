#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "services/dispatch/db/federation.h"
#include "services/dispatch/metrics.h"
#include "services/dispatch/testing/dispatch_fixture.h"
#include "services/dispatch/work/federation_metrics.h"

namespace atl::dispatch {
namespace {

// What Prometheus is given of a thousand jobs.
class FederationSeriesTest : public DispatchSchemaTest {
  protected:
    static constexpr int kFacilities = 8;

    void SetUp() override {
        DispatchSchemaTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        connection_.emplace(connect());
        run("SET session_replication_role = replica;"
            "INSERT INTO facilities (name, spec) SELECT 'site' || n, '{}' FROM generate_series(1, 8) n");
    }
    void run(const std::string& sql) {
        const auto done = connection_->script(sql);
        ASSERT_TRUE(done.ok()) << describe(done.error());
    }
    // Each has closed its first round and trains its second at two facilities.
    void add_running_jobs() {
        run("INSERT INTO jobs (id, name, spec, base_digest, state, current_round, created_by) SELECT '" + kIds +
            "' || n, 'job' || n, '{\"rounds\": 4}', 'b', 'running', 2, 't' FROM generate_series(1000, 1999) n;"
            "INSERT INTO rounds (job_id, number, index, state, base_digest, evaluated, opened_at, aggregating_at, "
            "closed_at) SELECT '" +
            kIds +
            "' || n, r, r, CASE r WHEN 1 THEN 'closed' ELSE 'training' END, 'b', r = 1, now() - interval '1 hour' * "
            "(3 - r), CASE r WHEN 1 THEN now() - interval '61 minutes' END, CASE r WHEN 1 THEN now() - interval '1 "
            "hour' END FROM generate_series(1000, 1999) n, generate_series(1, 2) r;"
            "INSERT INTO tasks (id, job_id, round, kind, facility, params, state, attempts_max) SELECT '" +
            kIds + "t' || n || s, '" + kIds +
            "' || n, 2, 'train', 'site' || (1 + (n + s) % 8), '{}', 'running', 1 FROM generate_series(1000, 1999) n, "
            "generate_series(0, 1) s;"
            "INSERT INTO attempts (task_id, number, batch_job_name, step, progress) SELECT id, 1, id, 'running', "
            "'{\"last_step\": {\"step\": 7, \"loss\": 2.5, \"grad_norm\": 1, \"tokens_per_s\": 9, \"mfu\": 0.4, "
            "\"peak_bytes\": 5, \"step_s\": 2, \"exposed_comm_s\": 1, \"eta_s\": 60, \"time_unix_s\": 1.5}}' FROM "
            "tasks");
    }
    std::string served() {
        const auto state = read_federation_state(*connection_);
        EXPECT_TRUE(state.ok()) << describe(state.error());
        if (state.ok()) show(*state, metrics_);
        EXPECT_TRUE(ends_.look(*connection_, metrics_).ok());
        return metrics_.expose();
    }
    static std::int64_t series_of(const std::string& text) {
        std::int64_t series = 0;
        for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) series += text[at] == '#' ? 0 : 1;
        return series;
    }
    double updates(const char* facility, const char* outcome) {
        return metrics_.counter(kMetrics["atoll_round_updates_total"], {{"facility", facility}, {"outcome", outcome}})
            .Value();
    }

    const std::string kIds = "01jd3v7e8m2k4t6w8y0a";  // of which all that is an id here begins
    std::optional<pg::Connection> connection_;
    metrics::Registry metrics_;
    EndCounter ends_;
};

TEST_F(FederationSeriesTest, AThousandJobsMakeABoundedNumberOfSeriesAndLeaveNone) {
    add_running_jobs();
    const std::string running = served();
    // 9 metrics of at most 500 trainings, 3 of at most 500 jobs; the rest is of facilities.
    EXPECT_LE(series_of(running), 9 * 500 + 3 * 500 + 60 * kFacilities + 100);
    EXPECT_GT(series_of(running), 5000) << "they are there";
    EXPECT_NE(running.find("atoll_training_loss{atoll_job=\"job"), std::string::npos);
    EXPECT_NE(running.find("atoll_job_expected_end_timestamp_seconds{atoll_job=\"job"), std::string::npos);
    EXPECT_EQ(running.find(kIds), std::string::npos) << "an id in a label";
    run("UPDATE jobs SET state = 'completed', finished_at = now(); UPDATE tasks SET state = 'done'");
    const std::string ended = served();
    EXPECT_EQ(ended.find("atoll_job=\""), std::string::npos) << "jobs that have ended are served no longer";
    EXPECT_LE(series_of(ended), 60 * kFacilities + 100);
}

TEST_F(FederationSeriesTest, EachEndOfAJobCountsOnceAndARunningJobSaysItsRound) {
    add_running_jobs();
    EXPECT_NE(served().find("atoll_job_round{atoll_job=\"job1000\"} 2\n"), std::string::npos);
    const auto ended = [&](const char* outcome) {
        served();
        return metrics_.counter(kMetrics["atoll_jobs_ended_total"], {{"outcome", outcome}}).Value();
    };
    EXPECT_EQ(ended("completed"), 0);
    const std::string job = "'" + kIds + "1000'";
    run("UPDATE jobs SET state = 'failed', finished_at = clock_timestamp() WHERE id = " + job);
    EXPECT_EQ(ended("failed"), 1);
    EXPECT_EQ(ended("failed"), 1) << "it has been counted";
    EXPECT_EQ(served().find("atoll_job_round{atoll_job=\"job1000\"}"), std::string::npos);
    run("UPDATE jobs SET state = 'running', finished_at = NULL WHERE id = " + job);
    EXPECT_EQ(ended("completed"), 0);
    run("UPDATE jobs SET state = 'completed', finished_at = clock_timestamp() WHERE id = " + job);
    EXPECT_EQ(ended("completed"), 1) << "it was resumed";
    EXPECT_EQ(ended("failed"), 1);
}

TEST_F(FederationSeriesTest, WhatWaitsForItsPausedJobIsNotDue) {
    add_running_jobs();
    run("UPDATE tasks SET next_step_at = now() - interval '7 minutes'; UPDATE attempts SET step = 'staging'");
    EXPECT_EQ(served().find("\natoll_due_tasks 0\n"), std::string::npos);
    run("UPDATE jobs SET state = 'paused'");
    const std::string paused = served();
    EXPECT_NE(paused.find("\natoll_due_tasks 0\n"), std::string::npos);
    EXPECT_NE(paused.find("\natoll_due_task_age_seconds 0\n"), std::string::npos) << "nobody is to look at workers";
}

TEST_F(FederationSeriesTest, TheStateOfTheFederationHasAValueForEachFacility) {
    run("UPDATE facilities SET waiting_since = now() - interval '20 minutes', waiting_reason = 'no route' WHERE name = "
        "'site1';"
        "UPDATE facilities SET batch_silent_since = now() - interval '1 minute', batch_silence = 'squeue' WHERE name = "
        "'site2'");
    add_running_jobs();
    // Beside what runs: one that nobody has taken up, and rounds that last an hour after others of an hour.
    run("UPDATE tasks SET next_step_at = now() - interval '7 minutes' WHERE facility = 'site3' AND id LIKE '%0'");
    const std::string text = served();
    const auto value_of = [&](const std::string& series) {
        const auto at = text.find("\n" + series + " ");
        return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
    };
    EXPECT_EQ(value_of("atoll_facility_up{facility=\"site1\"}"), 0);
    EXPECT_EQ(value_of("atoll_facility_up{facility=\"site2\"}"), 1);
    EXPECT_NEAR(value_of("atoll_facility_silent_seconds{facility=\"site1\"}"), 1200, 60);
    EXPECT_EQ(value_of("atoll_facility_silent_seconds{facility=\"site2\"}"), 0);
    EXPECT_EQ(value_of("atoll_facility_batch_system_up{facility=\"site1\"}"), 1);
    EXPECT_EQ(value_of("atoll_facility_batch_system_up{facility=\"site2\"}"), 0);
    EXPECT_EQ(value_of("atoll_tasks_waiting{facility=\"site1\",reason=\"unreachable\"}"), 250);
    EXPECT_EQ(value_of("atoll_tasks_waiting{facility=\"site2\",reason=\"batch-system\"}"), 250);
    EXPECT_GT(value_of("atoll_due_tasks"), 0);
    EXPECT_NEAR(value_of("atoll_due_task_age_seconds"), 420, 60);
    EXPECT_NEAR(value_of("atoll_round_age_ratio"), 1, 0.2) << "an hour, as the round before";
    run("UPDATE rounds SET state = 'cancelled' WHERE state = 'closed';"
        "UPDATE rounds SET opened_at = now() - interval '24 hours' WHERE state = 'training' AND job_id LIKE '%1500'");
    const auto first_rounds = read_federation_state(*connection_);
    ASSERT_TRUE(first_rounds.ok());
    EXPECT_NEAR(first_rounds->round_age_ratio, 3, 0.1) << "a first round is held against eight hours";
    EXPECT_EQ(value_of("atoll_rounds{phase=\"training\"}"), 1000);
    EXPECT_NEAR(value_of("atoll_round_age_seconds{phase=\"training\"}"), 3600, 60);
}

TEST_F(FederationSeriesTest, EachPhaseOfARoundAndEachUpdateCountsOnce) {
    add_running_jobs();
    served();
    EXPECT_EQ(served().find("atoll_round_seconds_count"), std::string::npos) << "it ended before we looked";
    const std::string job = "'" + kIds + "1000'";
    run("UPDATE rounds SET state = 'closed', opened_at = now() - interval '70 s', closed_at = clock_timestamp(), "
        "aggregating_at = clock_timestamp(), accepted = jsonb_build_array('" +
        kIds + "t10000'), refused = jsonb_build_array(jsonb_build_object('task', '" + kIds +
        "t10001')) WHERE number = 2 AND job_id = " + job);
    for (int look = 0; look < 2; ++look) {
        const std::string text = served();
        EXPECT_NE(text.find("atoll_round_seconds_count{phase=\"training\"} 1\n"), std::string::npos) << text;
        EXPECT_NE(text.find("atoll_round_seconds_bucket{phase=\"training\",le=\"60\"} 0\n"), std::string::npos) << text;
        EXPECT_NE(text.find("atoll_round_seconds_count{phase=\"aggregating\"} 1\n"), std::string::npos) << text;
        EXPECT_EQ(text.find("phase=\"evaluating\",le"), std::string::npos) << "it is not evaluated yet";
    }
    EXPECT_EQ(updates("site1", "accepted"), 1) << "site1 trains task 0 of job 1000";
    EXPECT_EQ(updates("site2", "refused"), 1);
    run("UPDATE rounds SET evaluated_at = clock_timestamp() WHERE number = 2 AND job_id = " + job);
    EXPECT_NE(served().find("atoll_round_seconds_count{phase=\"evaluating\"} 1\n"), std::string::npos);
}

}  // namespace
}  // namespace atl::dispatch
