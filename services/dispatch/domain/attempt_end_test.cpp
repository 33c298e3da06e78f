#include "services/dispatch/domain/attempt_end.h"

#include <gtest/gtest.h>

#include "services/dispatch/testing/task_steps.h"
#include "shared/run_settings/exit_codes.h"

namespace atl::dispatch {
namespace {

// A look at what ended so, with the batch system's word.
Observed ended_by(std::int64_t exit_code, BatchEnd end, const std::string& reason) {
    Observed seen = exit_code == 0 ? out_of_time() : ended(exit_code);
    seen.queue_status = BatchAnswer{BatchState::kEnded, end, reason};
    seen.batch_asked_ms = 5;
    return seen;
}

TEST(AttemptEndTest, TheBatchSystemsWordIsSaidInWordsOfOurs) {
    const auto text = [](BatchEnd end, const std::string& reason) {
        return end_text({BatchState::kEnded, end, reason});
    };
    EXPECT_EQ(text(BatchEnd::kCancelled, "CANCELLED by ada: 0:15"),
              "its batch job was cancelled by ada (CANCELLED by ada: 0:15)");
    EXPECT_EQ(text(BatchEnd::kCancelled, "CANCELLED"), "its batch job was cancelled at the site (CANCELLED)");
    EXPECT_EQ(text(BatchEnd::kPreempted, "PREEMPTED"), "its batch job was preempted by another one (PREEMPTED)");
    EXPECT_EQ(text(BatchEnd::kNodeFailure, "NODE_FAIL"), "a node of its batch job failed (NODE_FAIL)");
    EXPECT_EQ(text(BatchEnd::kCompleted, "COMPLETED"), "its batch job ended by itself (COMPLETED)");
    EXPECT_EQ(text(BatchEnd::kUnknown, ""), "");
}

// The trainer saves and ends with 0, whoever told it to.
TEST(AttemptEndTest, ATrainingThatWasCancelledIsNotCalledTooLong) {
    Task task = at_step(Step::kRunning);
    for (int attempt = 1; task.state != TaskState::kFailed && attempt < 20; ++attempt) {
        const TaskChange change = apply(task, ended_by(0, BatchEnd::kCancelled, "CANCELLED by root"), kPollPolicy, 10);
        EXPECT_NE(change.task.attempt->error.find("its batch job was cancelled by root"), std::string::npos);
        ASSERT_FALSE(change.events.empty());
        EXPECT_NE(change.events.back().data.at("error").get<std::string>().find("cancelled by root"),
                  std::string::npos);
        task = change.task;
        if (task.state == TaskState::kFailed) break;
        EXPECT_EQ(change.events.back().type, "atoll.task.retrying.v1");
        EXPECT_EQ(change.events.back().data.at("interrupted"), true);
        task = begin_attempt(task).task;
        task.attempt->step = Step::kRunning;
    }
    EXPECT_EQ(task.state, TaskState::kFailed) << "what somebody at the site cancels is not to come back for long";
    EXPECT_EQ(task.error.find("raise `time`"), std::string::npos) << task.error;
    EXPECT_NE(task.error.find("ask the site why"), std::string::npos) << task.error;
}

TEST(AttemptEndTest, HowARunWasStoppedIsWaitedForWhileItsJobIsStillBeingEnded) {
    Observed stopped = out_of_time();
    stopped.queue_status = BatchAnswer{BatchState::kRunning, {}, ""};
    const TaskChange ending = apply(at_step(Step::kRunning), stopped, kPollPolicy, 5);
    EXPECT_EQ(ending.task.attempt->step, Step::kRunning);
    EXPECT_TRUE(stopped_early(ending.task, {})) << "its summary has been read";
    Observed told;
    told.started = true;
    told.exit_code = 0;
    told.queue_status = BatchAnswer{BatchState::kEnded, BatchEnd::kPreempted, "PREEMPTED"};
    const Task task = apply(ending.task, told, kPollPolicy, 6).task;
    EXPECT_EQ(task.attempt->step, Step::kInterrupted);
    EXPECT_EQ(task.attempt->error, "its batch job was preempted by another one (PREEMPTED)");
}

TEST(AttemptEndTest, ARunWhoseTimeWasUpSaysSoToo) {
    const TaskChange change = apply(at_step(Step::kRunning), out_of_time(), kPollPolicy, 5);
    EXPECT_EQ(change.task.attempt->step, Step::kDone);
    const std::string goes_on = "; its state is saved, and a longer `time` of its resources needs fewer attempts";
    EXPECT_EQ(change.task.attempt->error, "its time was up" + goes_on);
    EXPECT_EQ(change.events.back().type, "atoll.task.retrying.v1");
    EXPECT_EQ(change.events.back().data.at("error"), change.task.attempt->error);
    // Slurm's word for a job that was told in time, and whose script then ended well.
    const Task told =
        apply(at_step(Step::kRunning), ended_by(0, BatchEnd::kCompleted, "COMPLETED"), kPollPolicy, 5).task;
    EXPECT_EQ(told.attempt->error, change.task.attempt->error);
    const Task forgotten = apply(at_step(Step::kRunning), ended_by(0, BatchEnd::kUnknown, ""), kPollPolicy, 5).task;
    EXPECT_EQ(forgotten.attempt->error,
              "it was told to stop, and its batch system has forgotten why: its time was up, or somebody at the site "
              "ended it" +
                  goes_on);
    const Task limited =
        apply(at_step(Step::kRunning), ended_by(0, BatchEnd::kTimeLimit, "TIMEOUT: TimeLimit"), kPollPolicy, 5).task;
    EXPECT_EQ(limited.attempt->error, "its batch job reached its time limit (TIMEOUT: TimeLimit)" + goes_on);
    EXPECT_FALSE(stopped_early(at_step(Step::kRunning), printed({kSummary})));
    EXPECT_TRUE(stopped_early(at_step(Step::kRunning), printed({{{"summary", true}, {"resumable", true}}})));
}

TEST(AttemptEndTest, MemoryThatRanOutIsCalledSoWhoeverNoticedIt) {
    for (const std::string said :
         {"slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0.", "oom_kill_count 1",
          "slurmstepd: error: StepId=7.batch exceeded memory limit (846905344 > 104857600), being killed"})
        EXPECT_TRUE(tells_out_of_memory(said)) << said;
    EXPECT_FALSE(tells_out_of_memory("Killed"));
    Observed seen = ended_by(1, BatchEnd::kFailed, "FAILED: NonZeroExitCode");
    seen.is_out_of_memory = true;
    const Task failed = apply(at_step(Step::kRunning), seen, kPollPolicy, 5).task;
    EXPECT_EQ(failed.attempt->step, Step::kFailed);
    EXPECT_NE(failed.attempt->error.find("its batch job ran out of memory"), std::string::npos);
    EXPECT_NE(failed.attempt->error.find("raise `memory` of its resources"), std::string::npos);
    const Task killed = apply(at_step(Step::kRunning), ended(137), kPollPolicy, 5).task;
    EXPECT_EQ(killed.attempt->step, Step::kInterrupted) << "it may have been somebody";
    EXPECT_NE(killed.attempt->error.find("memory"), std::string::npos) << killed.attempt->error;
}

TEST(AttemptEndTest, ALossThatIsNotFiniteIsCalledSoAndNotTriedAgain) {
    Observed seen = ended_by(run_settings::kExitNotFinite, BatchEnd::kFailed, "FAILED: NonZeroExitCode");
    seen.is_out_of_memory = true;  // of an earlier step in the same log
    const Task silent = apply(at_step(Step::kRunning), seen, kPollPolicy, 5).task;
    EXPECT_EQ(silent.state, TaskState::kFailed) << "the next one would come to the same step";
    EXPECT_TRUE(silent.attempt->error.ends_with("exit code 4 (the loss is not finite: lower `lr`)"))
        << "a site that gives no logs says that: " << silent.attempt->error;
    seen.stderr_tail = "atoll-trainer train: the loss or its gradient is not finite at step 2";
    const Task told = apply(at_step(Step::kRunning), seen, kPollPolicy, 5).task;
    EXPECT_TRUE(told.attempt->error.ends_with("lower `lr`): " + seen.stderr_tail)) << told.attempt->error;
}

// Slurm may end all of a job at once, its script too, and call that a failure.
TEST(AttemptEndTest, MemoryThatRanOutBeforeAJobCouldRecordItsEndIsCalledSo) {
    Observed seen;
    seen.queue_status = BatchAnswer{BatchState::kEnded, BatchEnd::kFailed, "FAILED: JobLaunchFailure"};
    seen.batch_tail = "slurmstepd: error: Exceeded job memory limit";
    seen.is_out_of_memory = true;
    Task task = at_step(Step::kRunning);
    for (int answers = 1; task.attempt->step == Step::kRunning && answers < 10; ++answers) {
        seen.batch_asked_ms = answers * kPollPolicy.missing_ms;
        task = apply(task, seen, kPollPolicy, seen.batch_asked_ms).task;
    }
    EXPECT_EQ(task.attempt->step, Step::kFailed);
    EXPECT_EQ(task.attempt->error,
              "its batch job ran out of memory (FAILED: JobLaunchFailure) without its end.json; its log ends with: "
              "slurmstepd: error: Exceeded job memory limit; raise `memory` of its resources, or lower batch_size");
}

TEST(AttemptEndTest, AJobThatNeverBeganShowsTheEndOfItsLog) {
    Observed seen;
    seen.queue_status = BatchAnswer{BatchState::kEnded, BatchEnd::kFailed, "FAILED: NonZeroExitCode"};
    seen.batch_tail = "slurm_script: line 4: module: command not found";
    Task task = at_step(Step::kQueued);
    for (int answers = 1; task.attempt->step == Step::kQueued && answers < 10; ++answers) {
        seen.batch_asked_ms = answers * kPollPolicy.missing_ms;
        task = apply(task, seen, kPollPolicy, seen.batch_asked_ms).task;
    }
    EXPECT_NE(task.attempt->error.find("FAILED: NonZeroExitCode"), std::string::npos) << task.attempt->error;
    EXPECT_NE(task.attempt->error.find("its log ends with: slurm_script: line 4: module: command not found"),
              std::string::npos)
        << task.attempt->error;
}

TEST(AttemptEndTest, AJobThatEndedWithoutAWordWhereTheDiskIsFullWaitsForRoom) {
    Observed seen;
    seen.queue_status = BatchAnswer{BatchState::kEnded, BatchEnd::kCompleted, "COMPLETED"};
    seen.free_kib = 12;
    Task task = at_step(Step::kRunning);
    for (int answers = 1; task.attempt->step == Step::kRunning && answers < 10; ++answers) {
        seen.batch_asked_ms = answers * kPollPolicy.missing_ms;
        task = apply(task, seen, kPollPolicy, seen.batch_asked_ms).task;
    }
    EXPECT_EQ(task.state, TaskState::kPending);
    ASSERT_TRUE(task.attempt->waiting);
    EXPECT_EQ(
        task.attempt->waiting->reason,
        "its batch job ended by itself (COMPLETED) without its end.json; no room is left in its work directory (12 "
        "KiB): free some there");
}

// An answer that is older than the look which saw it run.
TEST(AttemptEndTest, WhatRunsIsNotCalledQueuedAfterwards) {
    Observed seen = ended_step();
    seen.queue_status = BatchAnswer{BatchState::kQueued, {}, "Resources"};
    seen.batch_asked_ms = 1;
    const TaskChange change = apply(at_step(Step::kQueued), seen, kPollPolicy, 5);
    EXPECT_EQ(change.task.attempt->step, Step::kRunning);
    for (const DomainEvent& event : change.events) EXPECT_NE(event.type, "atoll.task.queued.v1");
    EXPECT_EQ(change.task.attempt->queue_reason, "");
}

TEST(AttemptEndTest, ABatchSystemThatDoesNotAnswerIsNotTheTasksWait) {
    Observed seen = ended_step();
    seen.no_queue_status = "Slurm of leonardo does not answer";
    seen.is_batch_system_silent = true;
    const TaskChange change = apply(at_step(Step::kRunning), seen, kPollPolicy, 5);
    EXPECT_EQ(change.batch_silence, "Slurm of leonardo does not answer");
    EXPECT_EQ(change.task.attempt->waiting, std::nullopt);
    EXPECT_EQ(change.task.attempt->step_failures, 0) << "what runs is looked at as ever";
    seen.no_queue_status.clear();
    seen.queue_status = BatchAnswer{BatchState::kRunning, {}, ""};
    EXPECT_EQ(apply(change.task, seen, kPollPolicy, 6).batch_silence, "");
    EXPECT_EQ(apply(change.task, ended_step(), kPollPolicy, 6).batch_silence, std::nullopt) << "it was not asked";
    EXPECT_EQ(apply(at_step(Step::kSubmitting), Submitted{"17"}, kPollPolicy, 6).batch_silence, std::nullopt)
        << "a file of an earlier submission tells the id, too";
}

}  // namespace
}  // namespace atl::dispatch
