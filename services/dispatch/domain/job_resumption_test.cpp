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

std::vector<Task> evaluations_since(const JobView& job, std::size_t before) {
    std::vector<Task> found;
    for (std::size_t i = before; i < job.tasks.size(); ++i)
        if (job.tasks[i].kind() == TaskKind::kEvaluate) found.push_back(job.tasks[i]);
    return found;
}

// As the database has it once a resumption has opened the round's evaluations again.
void fail_evaluation_of_round_1_at_a(JobView& job) {
    task_of(job, TaskKind::kEvaluate, 1, "a").state = TaskState::kFailed;
    task_of(job, TaskKind::kEvaluate, 1, "a").error = "a: evaluate of round 1 failed: no such queue";
    task_of(job, TaskKind::kEvaluate, 1, "b").state = TaskState::kDone;
    std::erase_if(job.closed, [](const Round& round) { return round.number == 0; });
}

TEST(JobResumptionTest, TheNewestModelsEvaluationsThatFailedAreTriedAgain) {
    JobView job = job_that_failed_in_round_2();
    fail_evaluation_of_round_1_at_a(job);
    std::size_t before = job.tasks.size();
    take(job, resume_failed_job(job, {}, 1000).value());
    std::vector<Task> again = evaluations_since(job, before);
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0].facility, "a");
    EXPECT_EQ(again[0].round, 1);
    EXPECT_EQ(to_json(again[0].params), to_json(task_of(job, TaskKind::kEvaluate, 1, "a").params));
    EXPECT_EQ(job.closed.at(0).evaluate_by_ms, 1000 + job.spec.round_deadline_s * 1000);
    // What is under way is not begun once more, and what was found in the end counts.
    job.state = JobState::kPaused;
    before = job.tasks.size();
    take(job, resume_round(job).value());
    EXPECT_TRUE(evaluations_since(job, before).empty());
    for (Task& task : job.tasks)
        if (task.id == again[0].id) task.state = TaskState::kDone;
    const JobDecision evaluated = advance_job(job, 2000);
    ASSERT_FALSE(evaluated.events.empty());
    EXPECT_EQ(evaluated.events[0].type, "atoll.round.evaluated.v1");
    EXPECT_FALSE(evaluated.events[0].data.contains("failed_evaluations")) << evaluated.events[0].data;
}

TEST(JobResumptionTest, APausedJobsFailedEvaluationsAreTriedAgainToo) {
    JobView job = job_that_failed_in_round_2();
    fail_evaluation_of_round_1_at_a(job);
    job.state = JobState::kPaused;
    const std::size_t before = job.tasks.size();
    take(job, resume_round(job).value());
    ASSERT_EQ(evaluations_since(job, before).size(), 1U);
    JobView disallowed = job_that_failed_in_round_2();
    fail_evaluation_of_round_1_at_a(disallowed);
    disallowed.disallowed["a"] = "it is not for this job";
    take(disallowed, resume_round(disallowed).value());
    EXPECT_TRUE(evaluations_since(disallowed, before).empty());
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

// Each try leaves tasks, attempts and logs, all of which a round shows.
TEST(JobResumptionTest, ARoundIsNotTriedWithoutEnd) {
    JobView job = job_that_failed_in_round_2();
    fail_evaluation_of_round_1_at_a(job);
    int resumptions = 0;
    for (; resumptions < 1000; ++resumptions) {
        const auto resumed = resume_failed_job(job, {}, 1000);
        if (!resumed.ok()) {
            EXPECT_EQ(resumed.error().code, ErrorCode::kConflict);
            EXPECT_NE(resumed.error().message.find("submit a new job"), std::string::npos) << resumed.error().message;
            break;
        }
        take(job, *resumed);
        job.state = JobState::kFailed;
        job.round.state = RoundState::kFailed;
        for (Task& task : job.tasks)
            if (!is_finished(task.state)) task.state = TaskState::kFailed;
    }
    EXPECT_GE(resumptions, 50);
    EXPECT_LT(resumptions, 200);
    EXPECT_LE(evaluations_since(job, 0).size(), 60U);
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
}

// As where its newest model is spoiled, so that every training of it fails.
TEST(JobResumptionTest, AFailedJobGoesBackToAnEarlierModel) {
    JobView job = job_that_failed_in_round_2();
    Round base, first;
    base.number = base.index = 0;
    base.state = first.state = RoundState::kClosed;
    base.version = "base";
    first.number = first.index = 1;
    first.version = "g1";
    const std::vector<Round> rounds = {base, first, job.round};
    EXPECT_EQ(resume_job(job, rounds, {}).error().code, ErrorCode::kConflict) << "that is its round's business";
    const std::size_t before = job.tasks.size();
    const auto went_back = resume_job(job, rounds, {.from_round = 0});
    ASSERT_TRUE(went_back.ok()) << went_back.error().message;
    for (const Task& task : job.tasks)
        EXPECT_EQ(std::ranges::count(went_back->cancelled_tasks, task.id), is_finished(task.state) ? 0 : 1) << task.id;
    take(job, *went_back);
    EXPECT_EQ(job.state, JobState::kRunning);
    EXPECT_EQ(job.round.number, 3);
    EXPECT_EQ(job.round.index, 1);
    for (std::size_t i = before; i < job.tasks.size(); ++i)
        if (job.tasks[i].kind() == TaskKind::kTrain) {
            EXPECT_EQ(std::get<TrainParams>(job.tasks[i].params).base, "base");
        }
    JobView ends = job_that_failed_in_round_2();
    task_of(ends, TaskKind::kTrain, 2, "b").state = TaskState::kRunning;
    EXPECT_NE(resume_job(ends, rounds, {.from_round = 0}).error().message.find("has not ended yet"), std::string::npos);
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
    aggregated.round.parent = 1;
    const std::string again = "`atoll job resume " + aggregated.id + " --from-round 1";
    EXPECT_NE(resume_failed_job(aggregated, {}, 0).error().message.find(again + "` trains"), std::string::npos);
    aggregated.round.refused = {{task_of(aggregated, TaskKind::kTrain, 2, "b").id, "it holds NaN"}};
    EXPECT_NE(resume_failed_job(aggregated, {}, 0).error().message.find(again + " --without b`"), std::string::npos);
    JobView lacks = job_that_failed_in_round_2();
    lacks.records["b"] = {.refusals = 99, .reason = "it holds NaN"};
    EXPECT_NE(resume_failed_job(lacks, {}, 0).error().message.find("quarantine"), std::string::npos);
    JobView cancelled = job_that_failed_in_round_2();
    cancelled.state = JobState::kCancelled;
    EXPECT_EQ(resume_failed_job(cancelled, {}, 0).error().code, ErrorCode::kConflict);
}

}  // namespace
}  // namespace atl::dispatch
