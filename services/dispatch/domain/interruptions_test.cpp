#include <gtest/gtest.h>

#include "services/dispatch/domain/task_machine.h"
#include "services/dispatch/testing/task_steps.h"

namespace atl::dispatch {
namespace {

// The batch system has said it often enough.
Task after_end(Task task, BatchEnd end) {
    for (int i = 0; i < 10 && !is_finished(task.attempt->step); ++i) {
        Observed watched;
        watched.batch_asked_ms = 1000 + i * kPollPolicy.missing_ms;
        watched.queue_status = BatchAnswer{BatchState::kEnded, end, "its word"};
        task = apply(task, watched, kPollPolicy, watched.batch_asked_ms).task;
    }
    return task;
}

TEST(InterruptionsTest, OnlyFailuresOfTheTrainingItselfUseUpAttempts) {
    for (const BatchEnd end : {BatchEnd::kTimeLimit, BatchEnd::kNodeFailure, BatchEnd::kPreempted, BatchEnd::kCancelled,
                               BatchEnd::kCompleted}) {  // requeued by the site, where it gave way to its first start
        Task task = after_end(at_step(Step::kRunning), end);
        EXPECT_EQ(task.attempt->step, Step::kInterrupted);
        EXPECT_NE(task.attempt->error.find("its word"), std::string::npos);
        EXPECT_EQ(begin_attempt(task).task.attempt->failed_before, 0);
    }
    for (const BatchEnd end : {BatchEnd::kFailed, BatchEnd::kOutOfMemory})
        EXPECT_EQ(after_end(at_step(Step::kRunning), end).attempt->step, Step::kFailed);
}

TEST(InterruptionsTest, InterruptionsWithoutAStepBetweenThemComeToAnEnd) {
    Task task = at_step(Step::kRunning);
    int interruptions = 0;
    for (; interruptions < 100 && task.state != TaskState::kFailed; ++interruptions) {
        if (interruptions == 3) task = apply(task, ended_step(), kPollPolicy, 0).task;
        task = after_end(task, BatchEnd::kPreempted);
        if (task.state == TaskState::kFailed) break;
        task = begin_attempt(task).task;
        task.attempt->step = Step::kRunning;
    }
    EXPECT_GE(interruptions, 8) << "a step was made in the fourth";
    EXPECT_LT(interruptions, 20);
}

// As a site says which kills each training after a step.
TEST(InterruptionsTest, WhoComesFurtherEachTimeWaitsOnceThereWereMany) {
    Task task = at_step(Step::kRunning);
    for (int number = 1; number <= 25; ++number) {
        const TaskChange change = apply(task, ended(137, {{{"step", number}, {"loss", 5.0}}}), kPollPolicy, 0);
        ASSERT_EQ(change.task.state, TaskState::kPending) << number;
        EXPECT_EQ(change.next_in_ms > 0, number > 20) << number;
        task = begin_attempt(change.task).task;
        task.attempt->step = Step::kRunning;
    }
}

// Each has its batch job's whole time paid for.
TEST(InterruptionsTest, ATimeLimitThatWasTooShortTwiceIsNotTriedAgain) {
    const auto batch_jobs_until_it_fails = [](BatchEnd end, std::string& error) {
        Task task = at_step(Step::kRunning);
        task.attempts_max = 3;
        for (int count = 1; count < 100; ++count) {
            task = after_end(task, end);
            error = task.error;
            if (task.state == TaskState::kFailed) return count;
            task = begin_attempt(task).task;
            task.attempt->step = Step::kRunning;
        }
        return 100;
    };
    std::string error;
    EXPECT_EQ(batch_jobs_until_it_fails(BatchEnd::kTimeLimit, error), 2);
    EXPECT_NE(error.find("raise `time` of its resources"), std::string::npos) << error;
    EXPECT_EQ(batch_jobs_until_it_fails(BatchEnd::kCancelled, error), 3);
    EXPECT_NE(error.find("it was cancelled again before it came further: ask the site why"), std::string::npos)
        << error;
    EXPECT_EQ(batch_jobs_until_it_fails(BatchEnd::kPreempted, error), 6);
}

TEST(InterruptionsTest, WhoSavesItsStateFurtherOnThanAnyBeforeItComesFurther) {
    Task task = at_step(Step::kRunning);
    const auto next = [&] {
        task = begin_attempt(task).task;
        task.attempt->step = Step::kRunning;
    };
    const auto preempted = [&](int step) {
        Observed seen = out_of_time(step);
        seen.queue_status = BatchAnswer{BatchState::kEnded, BatchEnd::kPreempted, "PREEMPTED"};
        task = apply(task, seen, kPollPolicy, 0).task;
    };
    for (int cancelled = 0; cancelled < 2; ++cancelled, next()) task = after_end(task, BatchEnd::kCancelled);
    task.attempt->interruptions = 5;
    preempted(1739);
    ASSERT_EQ(task.state, TaskState::kPending) << task.error;
    EXPECT_EQ(task.attempt->interruptions, 1);
    int tries = 0;
    for (; task.state != TaskState::kFailed && tries < 100; ++tries) {  // the state is lost each time
        next();
        preempted(1739);
    }
    EXPECT_LT(tries, 10) << "that is no way forward";
}

// Cancelled by the site's administrators in the queue, or lost with the batch system's state.
TEST(InterruptionsTest, WhatWasCancelledBeforeItBeganWaitsAndCountsForNothing) {
    const Task cancelled = after_end(at_step(Step::kQueued), BatchEnd::kCancelled);
    EXPECT_EQ(cancelled.state, TaskState::kPending);
    EXPECT_EQ(cancelled.attempt->interruptions, 0);
    ASSERT_TRUE(cancelled.attempt->waiting);
    EXPECT_EQ(cancelled.attempt->waiting->reason, "its batch job was cancelled at the site (its word) before it began");
    EXPECT_EQ(after_end(at_step(Step::kRunning), BatchEnd::kCancelled).attempt->interruptions, 2);
    Task task = at_step(Step::kQueued);
    Observed unknown;
    unknown.queue_status = BatchAnswer{};
    for (int answers = 1; answers <= 3; ++answers) {
        unknown.batch_asked_ms = answers * PollPolicy().missing_ms;
        task = apply(task, unknown, PollPolicy(), unknown.batch_asked_ms).task;
    }
    EXPECT_EQ(task.attempt->error, "the batch job vanished before it began");
    EXPECT_EQ(task.attempt->interruptions, 1);
}

}  // namespace
}  // namespace atl::dispatch
