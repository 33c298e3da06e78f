#include "services/dispatch/db/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/job_orders.h"
#include "services/dispatch/db/job_views.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/testing/dispatch_fixture.h"
#include "services/dispatch/work/worker_pool.h"
#include "shared/base/id.h"
#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

using json::Json;

// The decisions about jobs on a real database, without any worker: the test plays what the sites answer.
class JobsTest : public DispatchSchemaTest {
  protected:
    void SetUp() override {
        DispatchSchemaTest::SetUp();
        if (!IsSkipped() && !HasFatalFailure()) connection_.emplace(connect());
    }

    // The longest name that there can be.
    static std::string facility_name(std::size_t number) {
        const std::string digits = std::to_string(1000 + number);
        return std::string(63 - digits.size(), 'f') + digits;
    }
    void add_facilities(std::size_t count) {
        auto transaction = pg::Transaction::begin(*connection_).value();
        for (std::size_t i = 0; i < count; ++i) {
            const Json facility = {{"name", facility_name(i)},
                                   {"transport", {{"kind", "local"}}},
                                   {"batch", {{"kind", "local"}}},
                                   {"work_dir", work_dir("any").string()}};
            ASSERT_TRUE(insert_facility(transaction, parse_facility(facility).value()).ok());
        }
        ASSERT_TRUE(transaction.commit().ok());
    }
    // A job of one round at the first `count` facilities; the first `places` evaluate every model, or the global ones.
    std::string add_job(std::size_t count, std::size_t places, const char* models = "all") {
        Json request = {{"name", std::string(63, 'j')},
                        {"model", {{"name", "tiny"}, {"version", "base"}}},
                        {"participants", Json::array()},
                        {"evaluation", {{"models", models}, {"at", Json::array()}}},
                        {"rounds", 1},
                        {"training", {{"steps", 3}}}};
        for (std::size_t i = 0; i < count; ++i)
            request["participants"].push_back({{"facility", facility_name(i)}, {"dataset", std::string(63, 'd')}});
        for (std::size_t i = 0; i < places; ++i) request["evaluation"]["at"].push_back(request["participants"][i]);
        JobView job;
        job.id = new_id();
        job.spec = parse_job_spec(request).value();
        job.base = digest::sha256("base");
        auto transaction = pg::Transaction::begin(*connection_).value();
        EXPECT_TRUE(insert_job(transaction, topics_, job, "tester").ok());
        EXPECT_TRUE(transaction.commit().ok());
        return job.id;
    }

    // Has a task end as it does in a worker, its events and the job's next decision in one transaction.
    Status finish(const LeasedTask& leased) {
        const Task task = begin_attempt(leased.task).task;
        const bool trains = task.kind() == TaskKind::kTrain;
        const TaskChange change = apply(task, trains ? training_result(task) : evaluation_result(task), {}, 0);
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection_));
        ATOLL_TRY(const std::int64_t before, rows_read(transaction));
        ATOLL_RETURN_IF_ERROR(save_task(transaction, change, leased.lease.fence));
        ATOLL_RETURN_IF_ERROR(record_events(transaction, topics_, task.job, change.events));
        ATOLL_RETURN_IF_ERROR(advance_after_end(transaction, topics_, change.task));
        ATOLL_TRY(const std::int64_t after, rows_read(transaction));
        rows_read_ += after - before;
        ++ends_;
        return transaction.commit();
    }
    // So far by this connection: of tables, and of long values that lie beside them.
    static Result<std::int64_t> rows_read(pg::Transaction& transaction) {
        ATOLL_TRY(const pg::Rows rows,
                  transaction.query("SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint AS n FROM "
                                    "pg_stat_xact_all_tables WHERE schemaname IN ('dispatch', 'pg_toast')"));
        return rows.integer(0, "n");
    }
    static Outcome training_result(const Task& task) {
        return Collected{{{"version", digest::sha256(task.id)},
                          {"samples", 123456789012},
                          {"tokens", 123456789012345},
                          {"metrics", {{"loss", 1.0 / 3}, {"tokens_per_s", 1e5 / 3}}}}};
    }
    // The trainer's lines of every model.
    static Outcome evaluation_result(const Task& task) {
        Observed watched;
        watched.exit_code = 0;
        watched.lines.assign(std::get<EvaluateParams>(task.params).models.size(),
                             Json{{"loss", 1.0 / 3}, {"perplexity", 1e5 / 3}, {"tokens", 123456789012345}}.dump());
        return watched;
    }
    // Everything that is due, but the cleaning up after a job.
    Status finish_all() {
        for (auto leased = lease(); leased && leased->task.kind() != TaskKind::kClean; leased = lease())
            ATOLL_RETURN_IF_ERROR(finish(*leased));
        return {};
    }
    Status aggregate(const std::string& job, std::int64_t round) {
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection_));
        ATOLL_TRY(const JobView view, lock_job(transaction, job));
        const AggregationResult result{round, digest::sha256("global"), ""};
        ATOLL_RETURN_IF_ERROR(apply_decision(transaction, topics_, view, apply_aggregation(view, result, view.now_ms)));
        return transaction.commit();
    }
    pg::Rows query(const std::string& sql) { return connection_->query(sql).value(); }
    std::optional<LeasedTask> lease() { return lease_task(*connection_, {std::chrono::hours(1)}).value(); }

    Topics topics_{"test."};
    std::optional<pg::Connection> connection_;
    std::int64_t rows_read_ = 0;  // by all ends of tasks
    std::int64_t ends_ = 0;
};

TEST_F(JobsTest, TheLargestJobThatEvaluatesEveryModelComesToItsEndWithSmallEventsAndPages) {
    constexpr std::size_t kPlaces = kEvaluationsMax / (kParticipantsMax + 1);
    add_facilities(kParticipantsMax);
    const std::string job = add_job(kParticipantsMax, kPlaces);
    Status status = finish_all();
    ASSERT_TRUE(status.ok()) << status.error().message;
    status = aggregate(job, 1);
    ASSERT_TRUE(status.ok()) << status.error().message;
    status = finish_all();
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(query("SELECT state FROM jobs").text(0, "state"), "completed");
    EXPECT_EQ(query("SELECT 1 FROM rounds WHERE evaluated").size(), 2);
    const pg::Rows sizes = query(
        "SELECT event->>'type' AS type, max(octet_length(event::text)) AS bytes, count(*) AS n FROM outbox GROUP BY 1");
    for (int i = 0; i < sizes.size(); ++i) {
        const std::string type = sizes.text(i, "type");
        const bool is_of_all = type == "atoll.round.closed.v1" || type == "atoll.task.done.v1";
        EXPECT_LT(sizes.integer(i, "bytes"), is_of_all ? 400'000 : 4096) << type;
        RecordProperty(type, static_cast<int>(sizes.integer(i, "bytes")));
    }
    EXPECT_EQ(sizes.size(), 8) << "kinds of events";
    const Json base = rounds_view(*connection_, job, -1, 1000).value();
    EXPECT_EQ(base.at("items").size(), 1U) << "one round alone is a page";
    ASSERT_EQ(base.at("next"), "0");
    const Json round = rounds_view(*connection_, job, 0, 1000).value();
    ASSERT_EQ(round.at("items").size(), 1U);
    EXPECT_EQ(round.at("next"), nullptr);
    EXPECT_EQ(round.at("items")[0].at("evaluations").size(), kPlaces * (kParticipantsMax + 1));
    EXPECT_LT(round.dump().size(), 16U << 20);
}

TEST_F(JobsTest, TheEndOfATaskReadsAsMuchHoweverManyTakePart) {
    add_facilities(kParticipantsMax);
    std::map<std::size_t, double> rows_an_end;
    for (const std::size_t participants : {std::size_t{128}, kParticipantsMax}) {
        const std::string job = add_job(participants, participants, "global");
        query("ANALYZE");
        rows_read_ = ends_ = 0;
        const Status status = finish_all();
        ASSERT_TRUE(status.ok()) << status.error().message;
        EXPECT_EQ(ends_, 2 * static_cast<std::int64_t>(participants));
        EXPECT_EQ(query("SELECT 1 FROM rounds WHERE state = 'aggregating' AND job_id = '" + job + "'").size(), 1);
        rows_an_end[participants] = static_cast<double>(rows_read_) / static_cast<double>(ends_);
        RecordProperty("rows_an_end_of_" + std::to_string(participants), std::to_string(rows_an_end[participants]));
    }
    EXPECT_LT(rows_an_end[128], 60);
    EXPECT_LT(rows_an_end[kParticipantsMax], rows_an_end[128] + 10);
}

TEST_F(JobsTest, AJobThatCannotBeReadIsShownAndHidesNoOther) {
    add_facilities(1);
    const std::string job = add_job(1, 1);
    for (const char* damage : {"'7'", "'{}'", "jsonb_set(spec, '{rounds}', '\"many\"')", "spec - 'output_model'"}) {
        query(std::string("UPDATE jobs SET spec = ") + damage);
        const Json view = job_view(*connection_, job).value();
        EXPECT_NE(view.at("error"), "") << damage;
        EXPECT_TRUE(view.at("rounds").is_number_integer() && view.at("output_model").is_string()) << view;
        EXPECT_EQ(job_list(*connection_, "", 10).value().at(0).at("error"), view.at("error"));
        const auto rounds = rounds_view(*connection_, job, -1, 10);
        ASSERT_FALSE(rounds.ok()) << damage;
        EXPECT_EQ(rounds.error().code, ErrorCode::kInternal);
    }
}

TEST_F(JobsTest, WhatAJobKeepsOfAFacilityIsReadAsItWasWritten) {
    add_facilities(1);
    const std::string job = add_job(1, 1);
    JobDecision decision;
    decision.records[facility_name(0)] = {2, "NaN", true, 3, 17.25, 4, 5};
    auto transaction = pg::Transaction::begin(*connection_).value();
    ASSERT_TRUE(apply_decision(transaction, topics_, lock_job(transaction, job).value(), decision).ok());
    EXPECT_EQ(lock_job(transaction, job)->records, decision.records);
}

TEST_F(JobsTest, EvaluationsThatAreLostWhereTheJobMayNotRunOpenTheirRoundNoMore) {
    add_facilities(2);
    const std::string job = add_job(2, 2, "global");
    ASSERT_TRUE(finish_all().ok());
    query("UPDATE tasks SET state = 'failed', error = 'no' WHERE kind = 'evaluate' AND facility = '" +
          facility_name(1) + "'");
    query("UPDATE rounds SET evaluated = true WHERE number = 0");
    const auto resume = [&] {
        query("UPDATE jobs SET state = 'paused', paused_at = now()");
        auto transaction = pg::Transaction::begin(*connection_).value();
        Status status = resume_job(transaction, topics_, job, {});
        EXPECT_TRUE(status.ok()) << status.error().message;
        status = advance_job(transaction, topics_, job);
        EXPECT_TRUE(status.ok()) << status.error().message;
        EXPECT_TRUE(transaction.commit().ok());
    };
    const auto told = [&] {
        return query("SELECT 1 FROM outbox WHERE event->>'type' = 'atoll.round.evaluated.v1'").size();
    };
    const auto tasks = [&] { return query("SELECT 1 FROM tasks WHERE kind = 'evaluate'").size(); };
    const int before = told(), made = tasks();
    query("UPDATE facilities SET spec = spec || '{\"owner\": \"ada\", \"allow\": []}' WHERE name = '" +
          facility_name(1) + "'");
    for (int i = 0; i < 2; ++i) resume();
    EXPECT_EQ(told(), before) << "nothing was evaluated again";
    EXPECT_EQ(tasks(), made);
    EXPECT_EQ(query("SELECT 1 FROM rounds WHERE number = 0 AND evaluated").size(), 1);
    query("UPDATE facilities SET spec = spec || '{\"owner\": \"\"}'");
    resume();
    EXPECT_EQ(tasks(), made + 1);
    EXPECT_EQ(query("SELECT 1 FROM rounds WHERE number = 0 AND evaluated").size(), 0) << "it waits for that";
}

TEST_F(JobsTest, AKeptAnswerIsTheJobAsItIsWhicheverReplicaChangedIt) {
    add_facilities(2);
    const std::string job = add_job(2, 1);
    pg::Connection other = connect();  // another replica's
    JobAnswers mine, theirs;
    std::set<std::string> shown;
    for (const char* change :
         {"UPDATE tasks SET state = 'running' WHERE id = (SELECT min(id) FROM tasks)",
          "UPDATE tasks SET state = 'pending'", "INSERT INTO ended_tasks SELECT id, 'train', 'failed', 1 FROM jobs",
          "UPDATE rounds SET state = 'closed', version_digest = repeat('c', 64)", "UPDATE jobs SET state = 'paused'",
          "UPDATE jobs SET current_round = 1, finished_at = now()",
          "UPDATE jobs SET records = jsonb_build_object(spec->'participants'->0->>'facility', "
          "'{\"refusals\": 2, \"reason\": \"NaN\"}'::jsonb)",
          "UPDATE jobs SET spec = jsonb_set(spec, '{rounds}', '9')", "UPDATE jobs SET error = 'it failed'"}) {
        ASSERT_TRUE(other.query(change).ok()) << change;
        const std::string now = job_view(*connection_, job)->dump();
        EXPECT_TRUE(shown.insert(now).second) << change << " is not seen: " << now;
        for (int i = 0; i < 2; ++i) {
            EXPECT_EQ(mine.show(*connection_, job).value(), now) << change;
            EXPECT_EQ(theirs.show(other, job).value(), now) << change;
        }
    }
    EXPECT_EQ(mine.show(*connection_, "none").error().code, ErrorCode::kNotFound);
}

TEST_F(JobsTest, ARoundThatIsOpenWhenItsJobFailsOrIsCancelledIsShownAsThat) {
    add_facilities(1);
    const std::string job = add_job(1, 1);
    const auto shown = [&](const std::string& job_state, const std::string& round_state) {
        query("UPDATE jobs SET state = '" + job_state + "'");
        query("UPDATE rounds SET state = '" + round_state + "' WHERE number = 1");
        return rounds_view(*connection_, job, -1, 1000)->at("items").back().at("state").get<std::string>();
    };
    for (const char* open : {"training", "aggregating"}) {
        for (const char* ended : {"failed", "cancelled"}) EXPECT_EQ(shown(ended, open), ended) << open;
        for (const char* going : {"running", "paused"}) EXPECT_EQ(shown(going, open), open) << going;
    }
    for (const char* ended : {"failed", "cancelled"})
        for (const char* done : {"closed", "failed", "cancelled"}) EXPECT_EQ(shown(ended, done), done) << ended;
}

TEST_F(JobsTest, APageOfRoundsEndsAfterItsBytes) {
    add_facilities(1);
    const std::string job = add_job(1, 1);
    query(
        "INSERT INTO rounds (job_id, number, index, state, base_digest, error) SELECT job_id, n, n, 'closed', "
        "base_digest, repeat('x', 200000) FROM rounds, generate_series(10, 40) n WHERE number = 0");
    std::size_t rounds = 0;
    std::int64_t after = -1;
    for (Json page; page.empty() || !page.at("next").is_null();) {
        page = rounds_view(*connection_, job, after, 1000).value();
        EXPECT_LT(page.dump().size(), kRoundsBytesMax + 250'000);
        rounds += page.at("items").size();
        if (!page.at("next").is_null()) after = std::stoll(page.at("next").get<std::string>());
    }
    EXPECT_EQ(static_cast<int>(rounds), query("SELECT 1 FROM rounds").size());
    const Json first = rounds_view(*connection_, job, -1, 1000).value();
    EXPECT_LT(first.at("items").size(), 10U) << "the rest is for the next pages";
}

TEST_F(JobsTest, APreparationSaysWhyItsEarlierAttemptsEnded) {
    add_facilities(1);
    Task task;
    task.id = new_id();
    task.preparation = new_id();
    task.facility = facility_name(0);
    PrepareParams params;
    params.dataset = "it";
    task.params = params;
    auto transaction = pg::Transaction::begin(*connection_).value();
    ASSERT_TRUE(insert_preparation(transaction, task.preparation, {{"dataset", "it"}}, "ada").ok());
    ASSERT_TRUE(insert_task(transaction, task).ok());
    ASSERT_TRUE(transaction.commit().ok());
    EXPECT_FALSE(preparation_view(*connection_, task.preparation)->contains("earlier_attempts"));
    for (const char* attempt : {"1, 'failed', 'the node went down'", "2, 'running', ''"})
        query("INSERT INTO attempts (task_id, number, step, error, batch_job_name, progress) SELECT '" + task.id +
              "', one.*, gen_random_uuid(), '" + progress_json(Attempt()).dump() + "' FROM (SELECT " + attempt +
              ") AS one");
    const Json ended = {{{"attempt", 1}, {"last_step", 0}, {"error", "the node went down"}}};
    EXPECT_EQ(preparation_view(*connection_, task.preparation)->at("earlier_attempts"), ended);
    EXPECT_EQ(preparation_list(*connection_, "", 10)->at(0).at("earlier_attempts"), ended);
}

TEST_F(JobsTest, RoundsAreShownWhateverTheirTasksHandedIn) {
    add_facilities(1);
    const std::string job = add_job(1, 1);
    ASSERT_TRUE(finish_all().ok());
    for (const char* damage : {"NULL", "'7'", "'{}'", "'{\"evaluations\": 7}'", "'{\"evaluations\": [7]}'"}) {
        query(std::string("UPDATE tasks SET state = 'done', result = ") + damage);
        const auto rounds = rounds_view(*connection_, job, -1, 10);
        ASSERT_TRUE(rounds.ok()) << damage;
        EXPECT_FALSE(rounds->at("items").empty());
    }
    query("UPDATE rounds SET refused = '[7]'");
    EXPECT_EQ(rounds_view(*connection_, job, -1, 10).error().code, ErrorCode::kInternal);
}

}  // namespace
}  // namespace atl::dispatch
