#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "services/dispatch/events/event_feed.h"
#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using json::Json;

// What a site says or a row holds ends an attempt at worst: the service goes on.
class LyingSiteTest : public DispatchServiceTest {
  protected:
    void set(const std::string& file, const std::string& text = "") { std::ofstream(fake(file)) << text; }
    void unset(const std::string& file) { std::filesystem::remove(fake(file)); }
    std::string submit_one_round(const std::string& name, int attempts_max) {
        Json request = job_request(1);
        request["name"] = name;
        request["attempts_max"] = attempts_max;
        request["evaluation"] = {{"at", Json::array()}};
        return submit(request);
    }
    std::vector<Json> events_of(const std::string& job, const std::string& type) {
        std::vector<Json> found;
        const Json page = get("/v1/jobs/" + job + "/events?limit=1000");
        for (const Json& event : page.at("items"))
            if (event.at("type") == type) found.push_back(event.at("data"));
        return found;
    }
    bool no_trainer_lives() {
        for (const auto& pid : lines("train.pids")) {
            const auto words = read_file("/proc/" + pid + "/cmdline");
            if (words.ok() && !words->empty()) return false;
        }
        return !lines("train.pids").empty();
    }
    // Has the database refuse, as it refuses U+0000 in a jsonb, the rows of attempts that `condition` (of NEW) tells.
    void refuse_attempts(const std::string& condition) {
        auto connection = connect();
        const Status made = connection.script(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
            "'unsupported Unicode escape sequence' USING ERRCODE = '22P05'; END $$;"
            "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON attempts FOR EACH ROW WHEN (" +
            condition + ") EXECUTE FUNCTION refuse()");
        ASSERT_TRUE(made.ok()) << made.error().message;
    }
};

TEST_F(LyingSiteTest, AFlagThatIsANumberFailsTheAttemptByItsLineAndTheServiceGoesOn) {
    set("train.says",
        "{\"step\":1,\"loss\":5.0}\nno JSON\n"
        "{\"summary\":true,\"resumable\":1,\"steps\":1,\"samples\":1,\"tokens\":1}\n");
    const std::string job = submit_one_round("lying", 2);
    ASSERT_TRUE(reaches(job, "failed")) << get("/v1/jobs/" + job).dump(2);
    for (const char* said : {"3", "stdout.jsonl", "resumable"})
        EXPECT_NE(error_of(job).find(said), std::string::npos) << error_of(job);
    unset("train.says");
    const std::string next = submit_one_round("honest", 1);
    EXPECT_TRUE(reaches(next, "completed")) << get("/v1/jobs/" + next).dump(2);
}

TEST_F(LyingSiteTest, AKeyThatTheDatabaseCannotHoldIsPassedOver) {
    set("train.says", "{\"step\":1,\"loss\":5.0,\"a\\u0000b\":1}\n");
    set("train.exits", "7");
    const std::string job = submit_one_round("lying", 2);
    ASSERT_TRUE(reaches(job, "failed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_NE(error_of(job).find("made to fail"), std::string::npos) << error_of(job);
    const auto progress = events_of(job, "atoll.task.progress.v1");
    ASSERT_FALSE(progress.empty());
    EXPECT_EQ(progress[0].at("loss"), 5.0);
}

TEST_F(LyingSiteTest, AnOutcomeThatTheDatabaseRefusesFailsItsAttemptAndEndsWhatRuns) {
    set("train.waits");
    refuse_attempts("NEW.step = 'running'");
    const std::string job = submit_one_round("refused", 2);
    ASSERT_TRUE(reaches(job, "failed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_EQ(connect().query("SELECT max(number) AS n FROM attempts").value().integer(0, "n"), 2);
    EXPECT_TRUE(eventually([&] { return no_trainer_lives(); }));
    EXPECT_FALSE(connect().query("SELECT 1 FROM attempt_logs WHERE number = 2")->empty()) << "their logs are kept";
    unset("train.waits");
}

TEST_F(LyingSiteTest, ParametersThatCannotBeReadFailTheirTaskAndEndWhatRuns) {
    set("train.waits");
    const std::string job = submit_one_round("broken", 2);
    ASSERT_TRUE(eventually([&] { return events_of(job, "atoll.task.running.v1").size() == 2; }));
    ASSERT_TRUE(connect().query("UPDATE tasks SET params = params - 'base' WHERE kind = 'train'").ok());
    ASSERT_TRUE(reaches(job, "failed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_NE(error_of(job).find("base"), std::string::npos) << error_of(job);
    EXPECT_TRUE(eventually([&] { return no_trainer_lives(); }));
    unset("train.waits");
    const std::string next = submit_one_round("whole", 1);
    EXPECT_TRUE(reaches(next, "completed")) << get("/v1/jobs/" + next).dump(2);
}

// Both sites print the digest of an update that one of them, or an earlier job, has handed in.
TEST_F(LyingSiteTest, AnUpdateCountsOnlyForTheAttemptThatHasHandedItIn) {
    const std::string earlier = submit_one_round("earlier", 1);
    ASSERT_TRUE(reaches(earlier, "completed")) << get("/v1/jobs/" + earlier).dump(2);
    const std::string foreign = aggregation_->closed_rounds()[0].at("updates")[0].at("version");
    std::filesystem::create_directories(fake("pushed/lying"));
    std::filesystem::copy(fake("pushed/earlier/" + foreign), fake("pushed/lying/" + foreign));
    set("push.says", foreign);
    const std::string job = submit_one_round("lying", 2);
    ASSERT_TRUE(reaches(job, "failed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    for (const std::string& said :
         {foreign, std::string("was not handed in by this attempt"), std::string("attempt 2")})
        EXPECT_NE(error_of(job).find(said), std::string::npos) << error_of(job);
    EXPECT_EQ(aggregation_->closed_rounds().size(), 1U);
    const Json participants = get("/v1/jobs/" + job).at("participants");
    EXPECT_TRUE(std::any_of(participants.begin(), participants.end(), [](const Json& participant) {
        return participant.at("refusals") == 2 && participant.at("state") == "quarantined";
    })) << participants;
}

TEST_F(LyingSiteTest, WhatWasHandedInCountsThoughTheSiteHasLostItSince) {
    set("push.loses");
    const std::string job = submit_one_round("lost", 1);
    ASSERT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_EQ(aggregation_->closed_rounds()[0].at("updates").size(), 2U);
}

TEST_F(LyingSiteTest, ADamagedJobKeepsNoOtherFromItsDeadline) {
    set("train.waits");
    const std::string one = submit_one_round("one", 1);
    const std::string other = submit_one_round("other", 1);
    const auto& [broken, good] = std::minmax(one, other);  // late jobs are looked at in this order
    auto connection = connect();
    ASSERT_TRUE(connection.query("UPDATE jobs SET spec = spec || '{\"damaged\": 1}' WHERE id = $1", {broken}).ok());
    ASSERT_TRUE(connection.query("UPDATE rounds SET deadline_at = now() WHERE state = 'training'").ok());
    EXPECT_TRUE(reaches(good, "failed")) << get("/v1/jobs/" + good).dump(2);
    EXPECT_NE(error_of(good), "");
    ASSERT_TRUE(reaches(broken, "failed"));
    EXPECT_NE(error_of(broken).find("damaged"), std::string::npos) << error_of(broken);
    unset("train.waits");
}

TEST_F(LyingSiteTest, ARowOfAnotherReleaseFailsItsJobAndWhatItHasRunningEnds) {
    const std::vector<std::string> damages = {
        "UPDATE jobs SET spec = spec - 'rounds' WHERE id = $1",
        "UPDATE jobs SET spec = spec || '{\"colour\": 1}' WHERE id = $1",
        "UPDATE rounds SET accepted = '[7]' WHERE job_id = $1",
        "UPDATE rounds SET refused = '[7]' WHERE job_id = $1",
        "UPDATE attempts SET step = 'hovering' WHERE step = 'running' AND task_id IN (SELECT id FROM tasks WHERE "
        "job_id "
        "= $1)",
        "UPDATE attempts SET progress = progress - 'log_offset' WHERE step = 'running' AND task_id IN (SELECT id FROM "
        "tasks WHERE job_id = $1)"};
    for (std::size_t i = 0; i < damages.size(); ++i) {
        set("train.waits");
        const std::string job = submit_one_round("job" + std::to_string(i), 1);
        ASSERT_TRUE(eventually([&] { return events_of(job, "atoll.task.running.v1").size() == 2; })) << damages[i];
        // A look that is under way writes back what it has read.
        const auto damage = [&] { return connect().query(damages[i], {job}).ok() && i < 4; };
        ASSERT_TRUE(eventually([&] { return damage() || state_of(job) == "failed"; })) << damages[i];
        unset("train.waits");
        ASSERT_TRUE(reaches(job, "failed")) << damages[i] << get("/v1/jobs/" + job).dump(2);
        EXPECT_NE(error_of(job).find("cannot be read"), std::string::npos) << damages[i] << ": " << error_of(job);
        EXPECT_TRUE(eventually([&] { return no_trainer_lives(); })) << damages[i];
    }
    const std::string next = submit_one_round("whole", 1);
    EXPECT_TRUE(reaches(next, "completed")) << get("/v1/jobs/" + next).dump(2);
}

TEST_F(LyingSiteTest, AJobThatCannotBeReadCanBeCancelled) {
    set("train.waits");
    const std::string job = submit_one_round("broken", 1);
    ASSERT_TRUE(eventually([&] { return events_of(job, "atoll.task.running.v1").size() == 2; }));
    ASSERT_TRUE(connect().query("UPDATE jobs SET spec = spec - 'rounds' WHERE id = $1", {job}).ok());
    const auto cancelled = client().post_json("/v1/jobs/" + job + "/cancel", Json::object());
    ASSERT_TRUE(cancelled.ok()) << cancelled.error().message;
    EXPECT_EQ(cancelled->at("state"), "failed");
    EXPECT_TRUE(eventually([&] { return no_trainer_lives(); }));
    unset("train.waits");
}

TEST_F(LyingSiteTest, AnAnswerThatCannotBeGivenKeepsNobodyElseFromTheirs) {
    const std::string job = submit_one_round("watched", 1);
    EventFeed feed(conninfo_, "dispatch");
    std::atomic<bool> was_asked = false;
    std::atomic<bool> is_answered = false;
    const auto query = [&](std::function<void(Result<EventPage>)> answer) {
        return EventFeed::Query{.job = job, .deadline = std::chrono::steady_clock::now(), .answer = std::move(answer)};
    };
    feed.ask(query([&](const Result<EventPage>&) {
        was_asked = true;
        throw std::runtime_error("the client's text cannot be written");
    }));
    ASSERT_TRUE(eventually([&] { return was_asked.load(); }));
    feed.ask(query([&](const Result<EventPage>& page) { is_answered = page.ok(); }));
    EXPECT_TRUE(eventually([&] { return is_answered.load(); }));
}

}  // namespace
}  // namespace atl::dispatch
