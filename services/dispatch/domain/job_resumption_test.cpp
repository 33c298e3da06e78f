#include <gtest/gtest.h>

#include <algorithm>

#include "services/dispatch/domain/round_machine.h"
#include "services/dispatch/testing/job_rounds.h"

namespace atl::dispatch {
namespace {

// A job whose second round has failed at "b" after "a" has handed its update in.
JobView job_that_failed_in_round_2() {
    JobView job = new_job();
    take(job, submit_job(job, 0));
    const auto hand_in = [&](std::int64_t round, const std::string& facility) {
        Task& task = task_of(job, TaskKind::kTrain, round, facility);
        task.state = TaskState::kDone;
        task.result = {{"version", "u" + facility}, {"samples", 10}, {"tokens", 100}};
    };
    hand_in(1, "a");
    hand_in(1, "b");
    take(job, advance_job(job, 0));
    take(job, apply_aggregation(job, {1, "g1", ""}, 0));
    hand_in(2, "a");
    take(job, advance_job(job, 0));
    task_of(job, TaskKind::kTrain, 2, "b").state = TaskState::kFailed;
    task_of(job, TaskKind::kTrain, 2, "b").error = "b: out of luck";
    take(job, advance_job(job, 0));
    for (Task& task : job.tasks)  // what the end of the job has cancelled
        if (!is_finished(task.state) && task.kind() != TaskKind::kClean) task.state = TaskState::kCancelled;
    return job;
}

TEST(JobResumptionTest, AFailedJobTrainsTheRoundThatItFailedInAgainWithoutWhatWasHandedIn) {
    JobView job = job_that_failed_in_round_2();
    ASSERT_EQ(job.state, JobState::kFailed);
    const std::size_t before = job.tasks.size();
    const auto resumed = resume_failed_job(job, {}, 1000);
    ASSERT_TRUE(resumed.ok()) << resumed.error().message;
    take(job, *resumed);
    EXPECT_EQ(job.state, JobState::kRunning);
    EXPECT_EQ(job.round.number, 2);
    EXPECT_EQ(job.round.state, RoundState::kTraining);
    EXPECT_EQ(job.round.error, "");
    std::vector<const Task*> trainings;
    for (std::size_t i = before; i < job.tasks.size(); ++i)
        if (job.tasks[i].kind() == TaskKind::kTrain) trainings.push_back(&job.tasks[i]);
    ASSERT_EQ(trainings.size(), 1U) << "the update of a counts";
    EXPECT_EQ(trainings[0]->facility, "b");
    EXPECT_EQ(std::get<TrainParams>(trainings[0]->params).base, "g1");
    EXPECT_EQ(std::get<TrainParams>(trainings[0]->params).participant, 1);
    EXPECT_EQ(resumed->events.at(0).type, "atoll.job.resumed.v1");
    Task& again = *std::find_if(job.tasks.begin() + static_cast<std::ptrdiff_t>(before), job.tasks.end(),
                                [](const Task& task) { return task.kind() == TaskKind::kTrain; });
    again.state = TaskState::kDone;
    again.result = {{"version", "ub"}, {"samples", 10}, {"tokens", 100}};
    take(job, advance_job(job, 2000));
    EXPECT_EQ(job.round.state, RoundState::kAggregating);
    EXPECT_EQ(accepted_updates(job).size(), 2U);
}

TEST(JobResumptionTest, AJobThatIsResumedWithoutEndOpensNoMoreRounds) {
    JobView job = job_that_failed_in_round_2();
    job.round.number = 10 * job.spec.rounds + 100;
    const auto resumed = resume_failed_job(job, {}, 1000);
    ASSERT_FALSE(resumed.ok());
    EXPECT_EQ(resumed.error().code, ErrorCode::kConflict);
    EXPECT_NE(resumed.error().message.find("submit a new one"), std::string::npos) << resumed.error().message;
    job.state = JobState::kPaused;
    const auto went_back = resume_job(job, {}, {.from_round = 0});
    ASSERT_FALSE(went_back.ok());
    EXPECT_NE(went_back.error().message.find("submit a new one"), std::string::npos) << went_back.error().message;
}

TEST(JobResumptionTest, AFailedJobGoesOnWithoutTheFacilityThatItFailedAt) {
    JobView job = job_that_failed_in_round_2();
    const ResumeOrder without_b = {.without = {"b"}};
    job.spec.quorum = 1;
    const std::size_t before = job.tasks.size();
    const auto resumed = resume_failed_job(job, without_b, 1000);
    ASSERT_TRUE(resumed.ok()) << resumed.error().message;
    EXPECT_EQ(resumed->events.at(0).type, "atoll.participant.left_out.v1");
    EXPECT_TRUE(resumed->records.at("b").is_left_out);
    take(job, *resumed);
    for (std::size_t i = before; i < job.tasks.size(); ++i) EXPECT_NE(job.tasks[i].kind(), TaskKind::kTrain);
    take(job, advance_job(job, 2000));
    EXPECT_EQ(job.round.state, RoundState::kAggregating) << "what a had handed in is enough";
    JobView again = job_that_failed_in_round_2();
    EXPECT_EQ(resume_failed_job(again, {.without = {"nobody"}}, 0).error().field, "without");
    EXPECT_EQ(resume_failed_job(again, {.accepts = true}, 0).error().field, "accept");
    EXPECT_EQ(resume_failed_job(again, {.from_round = 1}, 0).error().field, "from_round");
}

TEST(JobResumptionTest, AFailedJobDoesNotGoOnWhileItEndsOrWhereItWouldFailAgain) {
    JobView ends = job_that_failed_in_round_2();
    task_of(ends, TaskKind::kTrain, 2, "b").state = TaskState::kRunning;
    EXPECT_NE(resume_failed_job(ends, {}, 0).error().message.find("has not ended yet"), std::string::npos);
    JobView cleans = job_that_failed_in_round_2();
    task_of(cleans, TaskKind::kClean, 2, "a").attempt.emplace();
    EXPECT_EQ(resume_failed_job(cleans, {}, 0).error().code, ErrorCode::kConflict);
    JobView aggregated = job_that_failed_in_round_2();
    aggregated.round.accepted = {"t1"};
    EXPECT_NE(resume_failed_job(aggregated, {}, 0).error().message.find("aggregation"), std::string::npos);
    JobView lacks = job_that_failed_in_round_2();
    lacks.records["b"] = {.refusals = 99, .reason = "it holds NaN"};
    EXPECT_NE(resume_failed_job(lacks, {}, 0).error().message.find("quarantine"), std::string::npos);
    JobView cancelled = job_that_failed_in_round_2();
    cancelled.state = JobState::kCancelled;
    EXPECT_EQ(resume_failed_job(cancelled, {}, 0).error().code, ErrorCode::kConflict);
}

}  // namespace
}  // namespace atl::dispatch
