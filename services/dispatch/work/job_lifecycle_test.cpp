#include <gtest/gtest.h>

#include <fstream>
#include <mutex>
#include <set>

#include "services/dispatch/db/tasks.h"
#include "services/dispatch/testing/job_lifecycle_fixture.h"
#include "shared/base/id.h"
#include "shared/http/client/client.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

class LostResultsTest : public JobLifecycleTest {
  protected:
    std::mutex mutex_;
    std::set<std::string> lost_;
};

TEST_F(JobLifecycleTest, AJobRunsThroughItsRounds) {
    begin();
    Json request = job_request(2);
    request["evaluation"] = {{"models", "all"}};
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job).dump(2);
    const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
    ASSERT_EQ(rounds.size(), 3U) << "the base and two rounds";
    EXPECT_EQ(rounds[0].at("evaluations").size(), 2U);
    EXPECT_EQ(rounds[1].at("base"), kBaseDigest);
    EXPECT_EQ(rounds[2].at("base"), rounds[1].at("version"));
    EXPECT_EQ(rounds[2].at("evaluations").size(), 6U) << "three models at two sites";
    EXPECT_EQ(rounds[1].at("tasks").at(0).at("metrics").at("loss"), 7.5);
    EXPECT_EQ(get("/v1/jobs/" + job).at("version"), rounds[2].at("version"));
    const Json first = get("/v1/jobs/" + job + "/rounds?limit=2");
    EXPECT_EQ(first, (Json{{"items", {rounds[0], rounds[1]}}, {"next", "1"}}));
    const Json second = get("/v1/jobs/" + job + "/rounds?limit=2&after=1");
    EXPECT_EQ(second, (Json{{"items", {rounds[2]}}, {"next", nullptr}}));
    EXPECT_EQ(client().call(Method::kGet, "/v1/jobs/" + job + "/rounds?after=one")->status, 422);
    const auto types = event_types(job);
    EXPECT_EQ(count(types, "atoll.round.closed.v1"), 2U);
    EXPECT_EQ(count(types, "atoll.round.evaluated.v1"), 3U);
    EXPECT_EQ(count_steps(job), 12U) << "three steps of four trainings";
    EXPECT_EQ(types.back(), "atoll.job.completed.v1");
    const auto closed = aggregation_->closed_rounds();
    ASSERT_EQ(closed.size(), 2U);
    EXPECT_EQ(closed[0].at("updates").at(0).at("facility"), "leonardo");
    EXPECT_EQ(closed[0].at("updates").at(0).at("samples"), 48);
    EXPECT_EQ(aggregation_->other_events(), 0) << "whatever else happens is nothing to aggregation";
    EXPECT_EQ(connect().query("SELECT 1 FROM inbox")->size(), 2) << "an answer a round";
    for (const auto& [name, starts] : trainings()) EXPECT_EQ(starts, 1) << name;
}

TEST_F(JobLifecycleTest, AFinishedJobLeavesItsLogsAndNoModels) {
    begin();
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(reaches(job, "completed"));
    ASSERT_TRUE(are_cleaned(2));
    for (const char* facility : {"leonardo", "karolina"})
        for (const auto& entry : std::filesystem::recursive_directory_iterator(work_dir(facility)))
            EXPECT_FALSE(entry.path().filename() == "out" || entry.path().filename() == "config.json") << entry.path();
    const std::string logs = client().call(Method::kGet, "/v1/jobs/" + job + "/logs?tail=2")->body;
    EXPECT_NE(logs.find("\"summary\":true"), std::string::npos) << logs;
    EXPECT_EQ(logs.find("\"step\":1,"), std::string::npos) << "only the tail";
}

TEST_F(JobLifecycleTest, LogsAreJsonWhereThatIsAskedForWhateverIsWrittenInThem) {
    begin();
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(reaches(job, "completed"));
    const Json task = get("/v1/jobs/" + job + "/rounds").at("items")[1].at("tasks")[0];
    const std::string id = task.at("id");
    const std::string facility = task.at("facility");
    const std::string like_a_heading = "== round 1, train at x, task y, attempt 1: stdout.jsonl\n";
    std::ofstream(work_dir(facility) / "tasks" / id / "1/stderr.log") << like_a_heading;
    ASSERT_TRUE(connect().query("DELETE FROM attempt_logs").ok());  // what is not kept is read at the site
    const Json answer = get("/v1/jobs/" + job + "/logs?format=json&tail=1&task=" + id);
    ASSERT_EQ(answer.at("items").size(), 2U) << answer.dump(2);
    EXPECT_EQ(answer.at("items")[1], (Json{{"round", 1},
                                           {"kind", "train"},
                                           {"facility", facility},
                                           {"task", id},
                                           {"attempt", 1},
                                           {"file", "stderr.log"},
                                           {"text", like_a_heading}}));
    EXPECT_EQ(answer.at("next"), nullptr);
    std::ofstream(work_dir(facility) / "tasks" / id / "1/batch.log") << "module: command not found\n";
    EXPECT_EQ(get("/v1/jobs/" + job + "/logs?format=json&task=" + id).at("items").size(), 3U);
}

TEST_F(JobLifecycleTest, TheLogsOfEveryAttemptAreKeptAndOutliveWhatLiesAtTheSite) {
    begin();
    set("train.exits", "1");
    Json request = job_request(1);
    request["attempts_max"] = 100;
    request["participants"].erase(1);
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    const std::string path = "/v1/jobs/" + job + "/logs?tail=5";
    const auto logs = [&](const std::string& query) { return client().call(Method::kGet, path + query).value(); };
    ASSERT_TRUE(eventually([&] { return logs("&attempt=1").body.find("made to fail") != std::string::npos; }));
    std::filesystem::remove(fake("train.exits"));
    ASSERT_TRUE(reaches(job, "completed"));
    ASSERT_TRUE(are_cleaned(1));
    std::filesystem::remove_all(work_dir("leonardo") / "tasks");
    const std::int64_t newest = get("/v1/jobs/" + job + "/rounds").at("items").back().at("tasks").at(0).at("attempt");
    ASSERT_GT(newest, 1);
    EXPECT_NE(logs("&attempt=1").body.find("attempt 1: stderr.log\n  made to fail"), std::string::npos)
        << logs("&attempt=1").body;
    for (const std::string& query : {std::string(), "&attempt=" + std::to_string(newest)})
        EXPECT_NE(logs(query).body.find("\"summary\":true"), std::string::npos) << logs(query).body;
    EXPECT_EQ(logs("&attempt=" + std::to_string(newest + 1)).status, 404);
    EXPECT_EQ(logs("&attempt=last").status, 422);
}

TEST_F(JobLifecycleTest, LogsThatCannotBeReadAtAnAttemptsEndAreReadWhenItsSiteIsCleaned) {
    begin();
    const auto bin = directory_.path() / "bin";
    std::filesystem::create_directories(bin);
    // The end of a file cannot be read, once.
    constexpr const char* kTail =
        "#!/bin/sh\ncase $* in '-c +'*) ;; *stdout.jsonl) ! mkdir \"$0.failed\" 2>/dev/null || exit 1 ;; esac\n"
        "exec /usr/bin/tail \"$@\"\n";
    ASSERT_TRUE(write_file_atomic(bin / "tail", kTail, 0755).ok());
    const Json patch = {{"environment", {{"PATH", bin.string() + ":" + std::getenv("PATH")}}}};
    ASSERT_EQ(client().call(Method::kPatch, "/v1/facilities/leonardo", patch.dump(), {{{"If-Match", "*"}}, {}})->status,
              200);
    Json request = job_request(1);
    request["participants"].erase(1);
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "completed"));
    ASSERT_TRUE(are_cleaned(1));
    EXPECT_TRUE(std::filesystem::exists(bin / "tail.failed"));
    EXPECT_EQ(connect().query("SELECT 1 FROM attempt_logs WHERE text LIKE '%summary%'")->size(), 1);
    EXPECT_TRUE(connect().query("SELECT 1 FROM attempts WHERE progress->>'log_tries' <> '0'")->empty());
}

TEST_F(JobLifecycleTest, AFacilityGivesAsMuchOfItsLogsAsItsRecordSays) {
    begin();
    const auto give = [&](const std::string& facility, const std::string& what) {
        const Json patch = {{"logs", {{"return", what}, {"bytes_max", 1024}}}};
        const auto answer =
            client().call(Method::kPatch, "/v1/facilities/" + facility, patch.dump(), {{{"If-Match", "*"}}, {}});
        EXPECT_EQ(answer->status, 200) << answer->body;
    };
    give("leonardo", "none");
    give("karolina", "errors");
    set("train.exits", "1");
    Json request = job_request(1);
    request["attempts_max"] = 1;
    request["quorum"] = 1;
    request["evaluation"] = {{"at", Json::array()}};
    const std::string failed = submit(request);
    ASSERT_TRUE(reaches(failed, "failed"));
    ASSERT_TRUE(eventually([&] {
        return connect().query("SELECT 1 FROM tasks WHERE kind = 'train' AND state IN ('pending', 'running')")->empty();
    }));
    const auto said = [&](const std::string& job, const std::string& facility) {
        const Json logs = get("/v1/jobs/" + job + "/logs?format=json").at("items");
        for (const Json& log : logs)
            if (log.at("facility") == facility && log.at("file") == "stderr.log")
                return log.contains("text") ? log.at("text").get<std::string>() : log.at("error").get<std::string>();
        return std::string("nothing");
    };
    EXPECT_NE(said(failed, "leonardo").find("gives no logs"), std::string::npos) << said(failed, "leonardo");
    EXPECT_EQ(said(failed, "karolina"), "made to fail\n");
    const Json tasks = get("/v1/jobs/" + failed + "/rounds").at("items").back().at("tasks");
    for (const Json& task : tasks)
        EXPECT_EQ(task.at("error").get<std::string>().find("made to fail") == std::string::npos,
                  task.at("facility") == "leonardo")
            << task;
    std::filesystem::remove(fake("train.exits"));
    const std::string done = submit(request);
    ASSERT_TRUE(reaches(done, "completed"));
    EXPECT_NE(said(done, "karolina").find("attempts that failed and no others"), std::string::npos)
        << said(done, "karolina");
    EXPECT_EQ(connect().query("SELECT DISTINCT task_id FROM attempt_logs")->size(), 1);
}

TEST_F(LostResultsTest, StepsWhoseResultsAreLostAreRepeatedWithoutASecondSubmission) {
    begin({.lose_result = [this](const Task& task) {
        const std::lock_guard lock(mutex_);
        const std::string step = task.attempt ? to_string(task.attempt->step) : "beginning";
        return task.kind() == TaskKind::kTrain && lost_.insert(task.id + step).second;
    }});
    Json request = job_request(1);
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_GE(lost_.size(), 8U) << "beginning, staging, submitting and collecting of two tasks";
    ASSERT_EQ(trainings().size(), 2U);
    for (const auto& [name, starts] : trainings()) EXPECT_EQ(starts, 1) << name;
    EXPECT_EQ(count(event_types(job), "atoll.task.done.v1"), 2U);
}

TEST_F(JobLifecycleTest, ATrainingThatRunsOutOfTimeGoesOnFromItsState) {
    begin();
    set("train.limited");  // one step a run
    Json request = job_request(1);
    request["evaluation"] = {{"at", Json::array()}};
    request["attempts_max"] = 1;
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    std::map<std::string, std::vector<int>> steps;
    const Json events = get("/v1/jobs/" + job + "/events?limit=1000");
    for (const auto& event : events.at("items"))
        if (event.at("type") == "atoll.task.progress.v1")
            steps[event.at("data").at("facility")].push_back(event.at("data").at("step"));
    for (const char* facility : {"leonardo", "karolina"})
        EXPECT_EQ(steps[facility], (std::vector{1, 2, 3})) << facility;
    EXPECT_EQ(trainings().size(), 6U) << "three submissions a task";
    for (const auto& [name, starts] : trainings()) EXPECT_EQ(starts, 1) << name;
    EXPECT_EQ(aggregation_->closed_rounds()[0].at("updates")[0].at("samples"), 48) << "of the whole run";
}

TEST_F(JobLifecycleTest, AnUpdateThatIsRefusedFailsItsTaskWithTheTensorsName) {
    begin();
    set("push.refuses", R"({"refused":true,"error":{"code":"invalid-argument","field":"model.norm.weight",)"
                        R"("detail":"tensor \"model.norm.weight\" of out holds NaN or infinity at element 3"}})");
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(reaches(job, "failed"));
    const std::string error = error_of(job);
    EXPECT_NE(error.find("tensor \"model.norm.weight\""), std::string::npos) << error;
    EXPECT_TRUE(aggregation_->closed_rounds().empty());
}

TEST_F(JobLifecycleTest, ARoundWhoseClosingGotLostIsToldAgain) {
    begin();
    aggregation_->set_losing(1);
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(eventually([&] { return aggregation_->closed_rounds().size() == 1; }));
    auto connection = connect();
    const auto waits = connection.query(
        "SELECT extract(epoch FROM ask_again_at - now())::bigint AS s FROM rounds"
        " WHERE state = 'aggregating'");
    ASSERT_EQ(waits->size(), 1);
    EXPECT_GT(waits->integer(0, "s"), 500);
    ASSERT_TRUE(connection.query("UPDATE rounds SET ask_again_at = now() WHERE state = 'aggregating'").ok());
    ASSERT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job).dump(2);
    const auto closed = aggregation_->closed_rounds();
    ASSERT_EQ(closed.size(), 2U);
    EXPECT_EQ(closed[0], closed[1]);
    EXPECT_EQ(count(event_types(job), "atoll.round.closed.v1"), 1U) << "it closed once";
}

TEST_F(JobLifecycleTest, AnUpdateThatTheAggregationLeavesOutIsShownWithItsReasonAndTheJobGoesOn) {
    begin();
    aggregation_->set_refused("karolina");
    Json request = job_request(3);
    request["quorum"] = 1;
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job).dump(2);
    const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
    for (const std::size_t number : {1U, 2U}) {
        EXPECT_EQ(rounds[number].at("accepted").size(), 1U);
        for (const Json& task : rounds[number].at("tasks")) {
            if (task.at("kind") != "train") continue;
            const bool refused = task.at("facility") == "karolina";
            EXPECT_EQ(task.at("refused"), refused);
            const std::string error = task.at("error");
            EXPECT_TRUE(error.ends_with(refused ? ": tensor \"w\" holds NaN" : "")) << error;
            EXPECT_EQ(error.empty(), !refused);
        }
    }
    EXPECT_EQ(count(event_types(job), "atoll.task.refused.v1"), 2U);
    EXPECT_EQ(trainings().size(), 5U) << "in the third round it trains no more";
    const Json participants = get("/v1/jobs/" + job).at("participants");
    EXPECT_EQ(participants[0].at("state"), "active") << participants;
    EXPECT_EQ(participants[1].at("state"), "quarantined") << participants;
    EXPECT_EQ(participants[1].at("reason"), "tensor \"w\" holds NaN");
    EXPECT_EQ(count(event_types(job), "atoll.participant.quarantined.v1"), 1U);
    EXPECT_EQ(post("/v1/jobs/" + job + "/participants/karolina/readmit", Json::object()).status, 409) << "it has ended";
}

TEST_F(JobLifecycleTest, AFacilityInQuarantineIsReadmittedByTheJobsOwner) {
    begin();
    set("train.samples", "49");  // more than its settings allow
    Json request = job_request(1);
    request["quarantine_after"] = 1;
    const std::string job = submit(request);
    const std::string path = "/v1/jobs/" + job;
    auto connection = connect();
    const auto readmit = [&](const std::string& facility) {
        return post(path + "/participants/" + facility + "/readmit", Json::object());
    };
    ASSERT_TRUE(connection
                    .query("UPDATE jobs SET state = 'paused', records = '{\"karolina\": {\"refusals\": 1, \"reason\": "
                           "\"NaN\"}}'")
                    .ok());
    EXPECT_EQ(get(path).at("participants")[1].at("state"), "quarantined");
    EXPECT_EQ(readmit("nobody").status, 404);
    EXPECT_EQ(client(auth::Role::kViewer).call(Method::kPost, path + "/participants/karolina/readmit", "{}")->status,
              403);
    EXPECT_EQ(readmit("karolina").status, 200);
    EXPECT_EQ(readmit("karolina").status, 200) << "safe to repeat";
    EXPECT_EQ(get(path).at("participants")[1].at("state"), "active");
    EXPECT_EQ(count(event_types(job), "atoll.participant.readmitted.v1"), 1U);
}

TEST_F(JobLifecycleTest, AServiceThatStopsDuringALongStepLeavesItToTheNext) {
    begin();
    set("stage.waits");
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(eventually([&] { return !lines("stage").empty(); }));
    stop_service();  // returns although staging waits
    auto connection = connect();
    EXPECT_EQ(connection.query("SELECT 1 FROM tasks WHERE lease_until > now()")->size(), 0);
    std::filesystem::remove(fake("stage.waits"));
    start_service();
    EXPECT_TRUE(reaches(job, "completed"));
}

TEST_F(JobLifecycleTest, ALeaseThatWasGivenBackIsNotRenewed) {
    begin();
    set("stage.waits");
    submit(job_request(1));
    ASSERT_TRUE(eventually([&] { return !lines("stage").empty(); }));
    stop_service();
    auto connection = connect();
    const auto leased = lease_task(connection, {std::chrono::hours(1)}).value();
    ASSERT_TRUE(leased.has_value());
    EXPECT_TRUE(pg::renew_lease(connection, leased->lease, std::chrono::hours(1)).value());
    ASSERT_TRUE(pg::give_lease_back(connection, leased->lease).ok());
    EXPECT_FALSE(pg::renew_lease(connection, leased->lease, std::chrono::hours(1)).value())
        << "its keeper may have looked before it was given back";
    EXPECT_EQ(connection.query("SELECT 1 FROM tasks WHERE lease_until > now()")->size(), 0);
}

TEST_F(JobLifecycleTest, ADuplicateAnswerOfAggregationHasOneEffect) {
    begin();
    aggregation_->set_copies(3);
    const std::string job = submit(job_request(2));
    ASSERT_TRUE(reaches(job, "completed"));
    const auto types = event_types(job);
    EXPECT_EQ(count(types, "atoll.round.opened.v1"), 2U);
    EXPECT_EQ(count(types, "atoll.round.aggregated.v1"), 2U);
    EXPECT_EQ(trainings().size(), 4U);
}

TEST_F(JobLifecycleTest, AFailedAggregationFailsTheJob) {
    begin();
    aggregation_->set_failing();
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(reaches(job, "failed"));
    EXPECT_TRUE(error_of(job).ends_with(": made to fail")) << error_of(job);
}

TEST_F(JobLifecycleTest, ATrainerThatKeepsFailingFailsTheJobWithItsLastWords) {
    begin();
    set("train.exits", "1");
    Json request = job_request(1);
    request["attempts_max"] = 2;
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "failed"));
    const std::string error = error_of(job);
    EXPECT_NE(error.find("made to fail"), std::string::npos) << error;
}

TEST_F(JobLifecycleTest, AnEvaluationThatPrintsWithoutEndIsEndedAtItsSite) {
    begin();
    set("eval.endless");
    Json request = job_request(1);
    request["attempts_max"] = 1;
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "completed")) << "a failed evaluation stops nothing";
    const auto pids = lines("eval.pids");
    EXPECT_EQ(pids.size(), 4U) << "of two rounds at two sites";
    for (const auto& pid : pids) {
        const auto words = read_file("/proc/" + pid + "/cmdline");
        EXPECT_TRUE(!words.ok() || words->empty()) << pid << " lives: " << *words;
    }
    std::filesystem::remove(fake("eval.endless"));
}

TEST_F(JobLifecycleTest, ADamagedFacilityFailsItsTasksAndNotTheService) {
    begin();
    set("train.waits");
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(eventually([&] { return count(event_types(job), "atoll.task.running.v1") >= 2; }));
    auto connection = connect();
    ASSERT_TRUE(
        connection.query("UPDATE facilities SET spec = spec || '{\"colour\": \"red\"}' WHERE name = 'karolina'").ok());
    ASSERT_TRUE(reaches(job, "failed"));
    const std::string error = error_of(job);
    for (const char* said : {"karolina", "colour"}) EXPECT_NE(error.find(said), std::string::npos) << error;
    const auto shown = client().get_json("/v1/facilities/karolina");
    EXPECT_EQ(shown.error().code, ErrorCode::kInternal);
    std::filesystem::remove(fake("train.waits"));
}

TEST_F(JobLifecycleTest, AnUpdateThatTheStoreDoesNotKnowIsNotTaken) {
    begin();
    const std::string unknown(64, 'c');
    set("push.says", unknown);
    Json request = job_request(1);
    request["attempts_max"] = 1;
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "failed"));
    const std::string error = error_of(job);
    EXPECT_NE(error.find(unknown), std::string::npos) << error;
    EXPECT_TRUE(aggregation_->closed_rounds().empty());
}

TEST_F(JobLifecycleTest, NumbersThatATrainingCannotHaveMadeWeighNothing) {
    begin();
    set("train.samples", "49");
    Json request = job_request(1);
    request["attempts_max"] = 1;
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "failed"));
    const std::string error = error_of(job);
    for (const char* count : {"49", "48"}) EXPECT_NE(error.find(count), std::string::npos) << error;
    EXPECT_TRUE(lines("push").empty()) << "nothing travelled";
}

TEST_F(JobLifecycleTest, BadInputIsTriedOnce) {
    begin();
    set("train.exits", "2");
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(reaches(job, "failed"));
    const pg::Rows made = connect().query("SELECT max(number) AS n, max(exit_code) AS code FROM attempts").value();
    EXPECT_EQ(made.integer(0, "n"), 1);
    EXPECT_EQ(made.integer(0, "code"), 2);
}

// Whether the clock jumps or whatever was written by it does is the same.
TEST_F(JobLifecycleTest, AJobTakesItsCourseThoughTheClockIsSetBackOrForwardByADay) {
    begin();
    auto connection = connect();
    for (const int days : {1, -1}) {
        set("train.waits");
        const std::string job = submit(job_request(1));
        ASSERT_TRUE(eventually([&] { return count(event_types(job), "atoll.task.running.v1") >= 2; }));
        const std::string day = std::to_string(days) + " * interval '1 day'";
        const auto moved = [&](const std::string& key) {
            return "'" + key + "', greatest(0, (progress->>'" + key + "')::bigint + " +
                   std::to_string(days * 86'400'000) + ")";
        };
        for (const std::string& jump :
             {"UPDATE facilities SET retry_at = retry_at + " + day,
              "UPDATE rounds SET deadline_at = deadline_at + " + day + ", evaluate_by = evaluate_by + " + day +
                  ", ask_again_at = ask_again_at + " + day,
              "UPDATE attempts SET progress = progress || jsonb_build_object(" + moved("batch_asked_ms") + ", " +
                  moved("missing_since_ms") + ") WHERE step = 'running'",
              "UPDATE tasks SET next_step_at = next_step_at + " + day + ", lease_until = lease_until + " + day +
                  " WHERE state IN ('pending', 'running')"})
            ASSERT_TRUE(connection.query(jump).ok()) << jump;
        std::filesystem::remove(fake("train.waits"));
        EXPECT_TRUE(reaches(job, "completed")) << days << get("/v1/jobs/" + job).dump(2);
    }
    for (const auto& [name, starts] : trainings()) EXPECT_EQ(starts, 1) << name;
}

TEST_F(JobLifecycleTest, ACancelledJobKillsWhatRuns) {
    begin();
    set("train.waits");
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(eventually([&] { return count(event_types(job), "atoll.task.running.v1") >= 2; }));
    EXPECT_EQ(client().call(Method::kPost, "/v1/jobs/" + job + "/cancel", "{}")->status, 200);
    EXPECT_EQ(state_of(job), "cancelled");
    EXPECT_TRUE(eventually([&] {
        const Json tasks = get("/v1/jobs/" + job).at("tasks");
        return !tasks.at("train").contains("running") && !tasks.at("train").contains("pending");
    })) << get("/v1/jobs/" + job).dump(2);
    EXPECT_EQ(get("/v1/jobs/" + job).at("tasks").at("train").at("cancelled"), 2);
    EXPECT_EQ(event_types(job).back(), "atoll.job.cancelled.v1");
    EXPECT_EQ(client().call(Method::kPost, "/v1/jobs/" + job + "/pause", "{}")->status, 409);
}

TEST_F(JobLifecycleTest, APausedJobCollectsWhatRunsAndStartsNothingUntilItIsResumed) {
    begin();
    set("train.waits");
    const std::string job = submit(job_request(2));
    ASSERT_TRUE(eventually([&] { return trainings().size() == 2; }));
    EXPECT_EQ(client().call(Method::kPost, "/v1/jobs/" + job + "/pause", "{}")->status, 200);
    std::filesystem::remove(fake("train.waits"));
    EXPECT_TRUE(eventually([&] { return get("/v1/jobs/" + job).at("round") == 2; })) << get("/v1/jobs/" + job).dump(2);
    EXPECT_EQ(state_of(job), "paused");
    EXPECT_EQ(lines("push").size(), 2U) << "the trainings ended, and were collected";
    EXPECT_EQ(trainings().size(), 2U);
    EXPECT_EQ(get("/v1/jobs/" + job).at("tasks").at("train"), (Json{{"done", 2}, {"pending", 2}}));
    EXPECT_EQ(client().call(Method::kPost, "/v1/jobs/" + job + "/resume", "{}")->status, 200);
    EXPECT_TRUE(reaches(job, "completed"));
    EXPECT_EQ(trainings().size(), 4U);
}

TEST_F(JobLifecycleTest, AJobWhoseModelIsSpoiledPausesAndGoesOnFromTheLastGoodOneWithoutAFacility) {
    begin();
    set("train.waits");
    const std::string job = submit(job_request(2));
    const std::string path = "/v1/jobs/" + job;
    ASSERT_TRUE(eventually([&] { return get(path).at("tasks").at("evaluate") == Json{{"done", 2}}; }));
    set("eval.perplexity", "100");
    std::filesystem::remove(fake("train.waits"));
    ASSERT_TRUE(reaches(job, "paused")) << get(path).dump(2);
    const Json paused = get(path);
    EXPECT_EQ(paused.at("version"), paused.at("base")) << "the last good model";
    EXPECT_EQ(paused.at("spoiled").at("round"), 1);
    EXPECT_EQ(paused.at("spoiled").at("sites")[0].at("after"), 100) << paused.at("spoiled");
    EXPECT_EQ(count(event_types(job), "atoll.job.paused.v1"), 1U);
    const auto resume = [&](const Json& order) { return client().call(Method::kPost, path + "/resume", order.dump()); };
    EXPECT_EQ(resume(Json::object())->status, 409) << "it does not say how";
    EXPECT_EQ(resume({{"without", {"nobody"}}})->status, 422);
    set("eval.perplexity", "7");
    EXPECT_EQ(post(path + "/resume", {{"without", std::vector<std::string>(1000, "karolina")}}).status, 200);
    EXPECT_EQ(count(event_types(job), "atoll.participant.left_out.v1"), 1U) << "a name counts once";
    ASSERT_TRUE(reaches(job, "completed")) << get(path).dump(2);
    const Json ended = get(path);
    EXPECT_EQ(ended.at("round"), 4) << "the first two count no more";
    EXPECT_EQ(ended.at("index"), 2);
    EXPECT_EQ(ended.at("rounds"), 2) << "as it was submitted";
    EXPECT_EQ(ended.at("participants")[1].at("state"), "left_out");
    const Json rounds = get(path + "/rounds").at("items");
    EXPECT_EQ(rounds[2].at("state"), "cancelled");
    EXPECT_EQ(rounds[3].at("base"), ended.at("base"));
    EXPECT_EQ(rounds[3].at("accepted").size(), 1U);
    EXPECT_EQ(rounds[4].at("version"), ended.at("version"));
}

TEST_F(JobLifecycleTest, TheTimeThatAJobIsPausedDoesNotCountTowardsItsDeadlines) {
    begin();
    set("train.waits");
    Json request = job_request(1);
    request["round_deadline_s"] = 1800;
    const std::string job = submit(request);
    EXPECT_EQ(client().call(Method::kPost, "/v1/jobs/" + job + "/pause", "{}")->status, 200);
    auto connection = connect();
    // An hour passes.
    for (const char* sql :
         {"UPDATE jobs SET paused_at = paused_at - interval '1 hour'",
          "UPDATE rounds SET opened_at = opened_at - interval '1 hour', closed_at = closed_at - interval '1 hour', "
          "deadline_at = deadline_at - interval '1 hour', evaluate_by = evaluate_by - interval '1 hour'"})
        ASSERT_TRUE(connection.query(sql).ok());
    EXPECT_EQ(client().call(Method::kPost, "/v1/jobs/" + job + "/pause", "{}")->status, 200) << "again";
    EXPECT_EQ(client().call(Method::kPost, "/v1/jobs/" + job + "/resume", "{}")->status, 200);
    EXPECT_EQ(connection.query("SELECT 1 FROM rounds WHERE coalesce(evaluate_by, deadline_at) > now()")->size(), 2);
    std::filesystem::remove(fake("train.waits"));
    EXPECT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job).dump(2);
}

TEST_F(JobLifecycleTest, AQuorumJobCompletesAlthoughAFacilityIsLost) {
    begin();
    // Whatever is tried there ends without a clear answer.
    std::filesystem::create_directories(work_dir("karolina"));
    ASSERT_TRUE(write_file_atomic(work_dir("karolina") / "tasks", "a file in the way").ok());
    Json request = job_request(2);
    request["quorum"] = 1;
    request["round_deadline_s"] = 1800;
    const std::string job = submit(request);
    auto connection = connect();
    const std::string done_here =
        "EXISTS (SELECT 1 FROM tasks t WHERE t.job_id = r.job_id AND t.round = r.number AND "
        "t.facility = 'leonardo' AND t.state = 'done' AND t.kind = ";
    // The deadlines pass once the living facility is done.
    const auto is_completed = [&] {
        EXPECT_TRUE(
            connection
                .query("UPDATE rounds r SET deadline_at = now() WHERE state = 'training' AND " + done_here + "'train')")
                .ok());
        EXPECT_TRUE(connection
                        .query("UPDATE rounds r SET evaluate_by = now() WHERE state = 'closed' AND NOT evaluated AND " +
                               done_here + "'evaluate')")
                        .ok());
        return state_of(job) == "completed";
    };
    ASSERT_TRUE(eventually(is_completed)) << get("/v1/jobs/" + job + "/rounds").dump(2);
    const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
    for (const Json& round : rounds) EXPECT_TRUE(round.at("evaluated")) << round.dump(2);
    EXPECT_EQ(rounds[2].at("accepted").size(), 1U);
    EXPECT_EQ(rounds[2].at("evaluations").size(), 1U) << "of the global model at the living facility";
}

TEST_F(JobLifecycleTest, EventsAreWaitedForAndReadOnFromACursor) {
    begin();
    set("train.waits");
    Json request = job_request(1);
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    const std::string path = "/v1/jobs/" + job + "/events?wait=20s&after=";
    ASSERT_TRUE(eventually([&] { return count(event_types(job), "atoll.task.running.v1") == 2; }));
    const std::string cursor = get("/v1/jobs/" + job + "/events?limit=1000").at("next");
    std::jthread release([&] {
        EXPECT_TRUE(get("/v1/jobs/" + job + "/events?wait=0s&after=" + cursor).at("items").empty());
        std::filesystem::remove(fake("train.waits"));
    });
    const Json page = get(path + cursor);
    release.join();
    ASSERT_FALSE(page.at("items").empty()) << "the wait ended without an event";
    EXPECT_EQ(page.at("items").at(0).at("number").get<std::int64_t>(), std::stoll(cursor) + 1);
    ASSERT_TRUE(reaches(job, "completed"));
    const std::string end = get("/v1/jobs/" + job + "/events?limit=1000").at("next");
    EXPECT_TRUE(get(path + end).at("items").empty()) << "nothing more can come, so nothing is waited for";
}

}  // namespace
}  // namespace atl::dispatch
