// What becomes of a batch job whose submission nobody has heard of.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "services/dispatch/testing/job_lifecycle_fixture.h"

namespace atl::dispatch {
namespace {

using json::Json;

class SubmissionTest : public JobLifecycleTest {
  protected:
    // A job of one training a round, whose first result at that step `act` sees, and may lose. Staging has one when the
    // model is there.
    std::string submit_training(Step step, std::function<bool()> act, int rounds = 1) {
        const auto model = work_dir("leonardo") / "models" / kBaseDigest;
        begin({.lose_result = [this, step, model, act = std::move(act)](const Task& task) {
            if (step == Step::kStaging && !std::filesystem::exists(model)) return false;
            const bool is_it = task.kind() == TaskKind::kTrain && task.attempt && task.attempt->step == step;
            return is_it && !was_seen_.exchange(true) && act();
        }});
        Json request = job_request(rounds);
        request["participants"].erase(1);
        request["evaluation"] = {{"at", Json::array()}};
        return submit(request);
    }
    void pause_jobs() { EXPECT_TRUE(connect().query("UPDATE jobs SET state = 'paused', paused_at = now()").ok()); }
    bool is_task(const std::string& condition) {
        return connect().query("SELECT 1 FROM tasks t JOIN attempts a ON a.task_id = t.id WHERE " + condition)->size() >
               0;
    }

  private:
    std::atomic<bool> was_seen_ = false;
};

TEST_F(SubmissionTest, WhatAPausedJobHasSubmittedIsWatchedAndCollected) {
    // A second round keeps the paused job from its end.
    const std::string job = submit_training(Step::kSubmitting, [this] { return pause_jobs(), true; }, /*rounds=*/2);
    EXPECT_TRUE(eventually([&] { return is_task("t.kind = 'train' AND t.state = 'done'"); }))
        << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_EQ(state_of(job), "paused");
    EXPECT_EQ(post("/v1/jobs/" + job + "/resume", Json::object()).status, 200);
    EXPECT_TRUE(reaches(job, "completed"));
    for (const auto& [name, count] : trainings()) EXPECT_EQ(count, 1) << name;
}

TEST_F(SubmissionTest, APausedJobSubmitsNothingUntilItIsResumed) {
    const std::string job = submit_training(Step::kStaging, [this] { return pause_jobs(), false; });
    EXPECT_TRUE(eventually([&] {
        return is_task("a.step = 'submitting' AND t.lease_until < now() AND t.next_step_at > now() + interval '20 s'");
    })) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_TRUE(trainings().empty());
    EXPECT_EQ(post("/v1/jobs/" + job + "/resume", Json::object()).status, 200);
    EXPECT_TRUE(reaches(job, "completed"));
}

TEST_F(SubmissionTest, WhereASubmissionIsRefusedAnEarlierOneIsEnded) {
    set("train.waits");
    lease_s_ = 5;  // nobody else takes the step while it waits for the trainer
    const std::string job = submit_training(Step::kSubmitting, [this] {
        EXPECT_TRUE(eventually([&] { return !lines("train.pids").empty(); }));
        EXPECT_TRUE(
            connect()
                .query(
                    "UPDATE tasks SET params = jsonb_set(params, '{resources,queue}', '\"gone\"') WHERE kind = 'train'")
                .ok());
        return true;
    });
    ASSERT_TRUE(reaches(job, "failed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_NE(error_of(job).find("resources.queue"), std::string::npos) << error_of(job);
    EXPECT_TRUE(eventually([&] {
        const auto words = read_file("/proc/" + lines("train.pids").front() + "/cmdline");
        return !words.ok() || words->empty();
    })) << "it goes on";
    std::filesystem::remove(fake("train.waits"));
}

}  // namespace
}  // namespace atl::dispatch
