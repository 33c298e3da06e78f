#include "services/dispatch/domain/waiting.h"

#include <gtest/gtest.h>

#include "services/dispatch/domain/attempt_end.h"
#include "services/dispatch/domain/site_trouble.h"
#include "services/dispatch/testing/task_steps.h"

namespace atl::dispatch {
namespace {

using json::Json;

TEST(WaitingTest, AnAttemptThatWaitsSaysForWhatSinceWhenAndWhenItIsTriedAgain) {
    Task task = apply(at_step(Step::kStaging), Unreachable{"no quota"}, kPollPolicy, 1000).task;
    EXPECT_EQ(task.attempt->waiting, (Waiting{"no quota", 1000, 1000 + backoff_ms(1, kPollPolicy)}));
    task = apply(task, Unreachable{"the store is away"}, kPollPolicy, 9000).task;
    EXPECT_EQ(task.attempt->waiting, (Waiting{"the store is away", 9000, 9000 + backoff_ms(2, kPollPolicy)}));
    Attempt kept;
    ASSERT_TRUE(read_progress(progress_json(*task.attempt), kept).ok());
    EXPECT_EQ(kept.waiting, task.attempt->waiting);
    Json of_an_earlier_release = progress_json(*task.attempt);
    of_an_earlier_release.erase("waiting");
    EXPECT_TRUE(read_progress(of_an_earlier_release, kept).ok());
    task = apply(task, Staged{}, kPollPolicy, 20000).task;
    EXPECT_EQ(task.attempt->waiting, std::nullopt);
    EXPECT_EQ(task.attempt->error, "") << "it is over";
}

TEST(WaitingTest, SinceIsOfTheTroubleThatIsTold) {
    Task task = at_step(Step::kSubmitting);
    const auto since_ms = [&](const std::string& why, std::int64_t now_ms) {
        task = apply(task, Unreachable{why}, kPollPolicy, now_ms).task;
        EXPECT_EQ(task.attempt->waiting->reason, why);
        return task.attempt->waiting->since_ms;
    };
    EXPECT_EQ(since_ms("the batch system: QOSGrpCPUMinutesLimit", 1000), 1000);
    EXPECT_EQ(since_ms("/work: its file system is mounted read-only", 2000), 2000) << "it is another one";
    EXPECT_EQ(since_ms("no answer from the store: refused", 3000), 3000);
    EXPECT_EQ(since_ms("no answer from the store: it timed out", 4000), 3000) << "it is the same one";
    EXPECT_EQ(since_ms("/image was written 1 seconds ago: is it still being copied?", 5000), 5000);
    EXPECT_EQ(since_ms("/image was written 12 seconds ago: is it still being copied?", 6000), 5000);
}

TEST(WaitingTest, ATrainingThatFindsItsQuotaFullIsTriedAgainForAsLongAsItTakes) {
    Observed full = ended(1);
    full.stderr_tail = "atoll-trainer train: cannot write out.state: Disk quota exceeded";
    full.is_of_site = true;
    Task task = at_step(Step::kRunning);
    for (int i = 0; i < 20; ++i) {  // more than attempts_max, and than interruptions in a row
        const TaskChange change = apply(task, full, kPollPolicy, 1000);
        ASSERT_EQ(change.task.state, TaskState::kPending) << change.task.error;
        EXPECT_GE(change.next_in_ms, 60000) << "a queue is no place to look for room";
        EXPECT_NE(change.task.attempt->waiting->reason.find("quota exceeded"), std::string::npos);
        task = begin_attempt(change.task).task;
        EXPECT_EQ(task.attempt->failed_before, 0);
        task.attempt->step = Step::kRunning;
    }
    task.cancel_requested = true;
    EXPECT_NE(apply(task, full, kPollPolicy, 1000).task.state, TaskState::kPending);
}

TEST(WaitingTest, WhatWasAwayForAWhileWhenATrainingBeganIsLookedForAgainAFewTimes) {
    Observed lost = ended(2);  // which is final otherwise
    lost.stderr_tail = "atoll-trainer train: --data: there is no '/work/datasets/it/1/train'";
    Task task = at_step(Step::kRunning);
    EXPECT_EQ(apply(task, lost, kPollPolicy, 1000).task.state, TaskState::kFailed) << "it was never there";
    lost.was_away = true;
    int waits = 0;
    for (; waits < 20 && task.state != TaskState::kFailed; ++waits) {
        const TaskChange change = apply(task, lost, kPollPolicy, 1000);
        task = change.task;
        if (task.state == TaskState::kFailed) break;
        EXPECT_GE(change.next_in_ms, 60000);
        EXPECT_NE(task.attempt->waiting->reason.find("there is no"), std::string::npos);
        task = begin_attempt(task).task;
        EXPECT_EQ(task.attempt->failed_before, 0);
        EXPECT_EQ(task.attempt->step, Step::kStaging) << "what is gone is brought again";
        task.attempt->step = Step::kRunning;
    }
    EXPECT_EQ(waits, 5) << "what is there for the login node alone is never found";
}

TEST(WaitingTest, AQueueThatIsGoneIsWaitedForAsLongAsAttemptsLast) {
    const std::string why = "the queue \"main\" does not exist at leonardo";
    Task task = at_step(Step::kSubmitting);
    const Outcome gone = outcome_of(task, with_cause(not_found(why), Cause::kSite));
    std::int64_t now_ms = 1000;
    std::vector<std::int64_t> minutes;
    int attempts = 1;
    for (int tries = 0; tries < 50 && task.state != TaskState::kFailed; ++tries) {
        const TaskChange change = apply(task, gone, kPollPolicy, now_ms);
        task = change.task;
        if (task.state == TaskState::kPending) {
            task = begin_attempt(task).task;
            task.attempt->step = Step::kSubmitting;
            ++attempts;
        } else if (task.state == TaskState::kRunning) {
            const std::string which =
                " (try " + std::to_string(tries % 5 + 1) + " of 5, with longer and longer pauses)";
            EXPECT_EQ(task.attempt->waiting, (Waiting{why + which, 1000, now_ms + change.next_in_ms}))
                << "since the first";
            // Whoever checks or changes the facility has it tried at once, which is none of these.
            for (int early = 0; early < 10; ++early) {
                const TaskChange looked = apply(task, gone, kPollPolicy, now_ms + early);
                ASSERT_EQ(looked.task.attempt->waiting, task.attempt->waiting);
                EXPECT_EQ(looked.next_in_ms, change.next_in_ms - early);
                task = looked.task;
            }
            minutes.push_back(change.next_in_ms / 60000);
        }
        now_ms += change.next_in_ms;
    }
    EXPECT_EQ(task.state, TaskState::kFailed);
    EXPECT_EQ(attempts, task.attempts_max);
    EXPECT_EQ(minutes, (std::vector<std::int64_t>{1, 2, 4, 8, 1, 2, 4, 8}));
    task = at_step(Step::kSubmitting);
    task = apply(task, gone, kPollPolicy, 1000).task;
    task = apply(task, Submitted{"17"}, kPollPolicy, 2000).task;
    EXPECT_EQ(task.attempt->waiting, std::nullopt) << "it is back";
    EXPECT_EQ(task.attempt->step, Step::kQueued);
    EXPECT_EQ(task.attempt->not_ready_since_ms + task.attempt->no_queue_since_ms, 0) << "it waits for its turn alone";
}

TEST(WaitingTest, AQueueThatWasGoneMakesNoPauseForAFullDiskLonger) {
    constexpr std::int64_t kHour_ms = 3'600'000;
    Task task = at_step(Step::kSubmitting);
    task.attempt->not_ready_since_ms = kHour_ms - 120'000;  // it was full before, too
    const Outcome gone = outcome_of(task, with_cause(not_found("no queue"), Cause::kSite));
    task = apply(task, gone, kPollPolicy, kHour_ms).task;
    task = apply(task, Submitted{"17"}, kPollPolicy, 2 * kHour_ms).task;
    EXPECT_EQ(task.attempt->not_ready_since_ms, kHour_ms - 120'000) << "its pauses grow on";
    task = at_step(Step::kSubmitting);
    task = apply(task, gone, kPollPolicy, kHour_ms).task;
    task = apply(task, Submitted{"17"}, kPollPolicy, 2 * kHour_ms).task;
    task.attempt->step = Step::kRunning;
    Observed full = ended(1);
    full.is_of_site = true;
    EXPECT_EQ(apply(task, full, kPollPolicy, 3 * kHour_ms).next_in_ms, 60000);
}

TEST(WaitingTest, ACleaningThatTakesLongIsTold) {
    Task task = cleaning_task("leonardo");
    task = begin_attempt(task).task;
    task = apply(task, Moving{}, kPollPolicy, 1000).task;
    EXPECT_FALSE(task.attempt->waiting);
    task = apply(task, Moving{}, kPollPolicy, 700'000).task;
    ASSERT_TRUE(task.attempt->waiting);
    EXPECT_EQ(task.attempt->waiting->since_ms, 1000);
    EXPECT_FALSE(apply(task, Cancelled{}, kPollPolicy, 800'000).task.attempt->waiting);
}

TEST(WaitingTest, AFullDiskIsTriedAfterLongerAndLongerPausesUntilATrainingComesFurther) {
    constexpr std::int64_t kMinute_ms = 60000;
    Observed full = ended(1);
    full.is_of_site = true;
    Task task = at_step(Step::kRunning);
    std::int64_t now_ms = 1000;
    std::vector<std::int64_t> minutes;
    const auto fill = [&](std::int64_t first_step) {
        full.lines = {Json({{"step", first_step}, {"loss", 5.0}}).dump()};
        const TaskChange change = apply(task, full, kPollPolicy, now_ms);
        EXPECT_EQ(change.task.attempt->waiting->next_ms, now_ms + change.next_in_ms);
        minutes.push_back(change.next_in_ms / kMinute_ms);
        now_ms += change.next_in_ms;
        task = begin_attempt(change.task).task;
        task.attempt->step = Step::kRunning;
        Attempt read;
        EXPECT_TRUE(read_progress(progress_json(*task.attempt), read).ok());
        EXPECT_EQ(read.not_ready_since_ms, task.attempt->not_ready_since_ms);
        return change.task.attempt->waiting->since_ms;
    };
    for (int i = 0; i < 8; ++i) EXPECT_EQ(fill(7), 1000);
    EXPECT_EQ(minutes, (std::vector<std::int64_t>{1, 1, 2, 4, 8, 16, 30, 30}));
    const std::int64_t later_ms = now_ms;
    EXPECT_EQ(fill(8), later_ms) << "it had room for a while";
    EXPECT_EQ(minutes.back(), 1);
}

TEST(WaitingTest, ASiteThatIsNotReadyForABatchJobIsWaitedForAndUsesUpNoAttempt) {
    Observed not_ready = ended(75);
    not_ready.stderr_tail = "there is no apptainer in PATH on node12";
    Observed without_work_directory;  // its job failed before its first line
    without_work_directory.queue_status = {BatchState::kEnded, BatchEnd::kFailed, "FAILED: NonZeroExitCode"};
    for (const auto& [seen, step] : {std::pair(not_ready, Step::kRunning), {without_work_directory, Step::kQueued}}) {
        Task task = at_step(step);
        for (int i = 0; i < 20; ++i) {
            TaskChange change;
            for (std::int64_t at = 0; task.attempt->step == step; ++at) {
                Observed now = seen;
                now.batch_asked_ms = at * kPollPolicy.missing_ms;
                change = apply(task, now, kPollPolicy, 1000);
                task = change.task;
                ASSERT_LT(at, 10);
            }
            ASSERT_EQ(task.state, TaskState::kPending) << task.error;
            EXPECT_GE(change.next_in_ms, 60000);
            EXPECT_NE(task.attempt->waiting, std::nullopt);
            EXPECT_NE(task.attempt->error.find(step == Step::kQueued ? "NonZeroExitCode" : "node12"),
                      std::string::npos);
            task = begin_attempt(task).task;
            EXPECT_EQ(task.attempt->failed_before, 0);
            task.attempt->step = step;
        }
    }
}

TEST(WaitingTest, WhatTheBatchSystemSaysOfAJobThatRunsOrHasEndedIsToldAtTheFirstAnswer) {
    const auto told = [](Step step, const BatchAnswer& answer) {
        Observed watched;
        watched.queue_status = answer;
        watched.batch_asked_ms = 1000;
        return apply(at_step(step), watched, kPollPolicy, 1000).task.attempt->queue_reason;
    };
    const BatchAnswer failed{BatchState::kEnded, BatchEnd::kFailed, "FAILED: NonZeroExitCode"};
    for (const Step step : {Step::kQueued, Step::kRunning})
        EXPECT_EQ(told(step, failed), "its batch job has ended (FAILED: NonZeroExitCode), and left no record so far");
    EXPECT_EQ(told(Step::kRunning, {BatchState::kEnded, BatchEnd::kCompleted, "COMPLETED"}), "") << "it is on its way";
    EXPECT_EQ(told(Step::kRunning, {BatchState::kRunning, {}, "", true}), "suspended by the site");
    EXPECT_EQ(told(Step::kRunning, {BatchState::kRunning, {}, "", false}), "");
}

TEST(WaitingTest, AWaitingJobSaysWhyAndSinceWhen) {
    const auto look = [](const Task& task, const std::string& reason, std::int64_t asked_ms) {
        Observed watched;
        watched.queue_status = BatchAnswer{BatchState::kQueued, {}, reason};
        watched.batch_asked_ms = asked_ms;
        return apply(task, watched, kPollPolicy, asked_ms);
    };
    const TaskChange first = look(at_step(Step::kQueued), "Priority", 1000);
    EXPECT_EQ(first.task.attempt->queue_reason, "Priority");
    EXPECT_EQ(first.task.attempt->queue_reason_since_ms, 1000);
    ASSERT_EQ(first.events.size(), 1U);
    EXPECT_EQ(first.events[0].type, "atoll.task.queued.v1");
    EXPECT_EQ(first.events[0].data.at("reason"), "Priority");
    EXPECT_EQ(first.events[0].data.at("step"), "queued");
    EXPECT_TRUE(look(first.task, "Priority", 2000).events.empty());
    EXPECT_TRUE(look(first.task, std::string(kTurnNotCome) + ": 1 job at once", 2000).events.empty());
    EXPECT_EQ(look(first.task, "Priority", 2000).task.attempt->queue_reason_since_ms, 1000);
    const TaskChange next = look(first.task, "Resources", 2000);
    EXPECT_EQ(next.task.attempt->queue_reason_since_ms, 2000);
    EXPECT_TRUE(next.events.empty()) << "its turn has not come, as before";
    const TaskChange never = look(next.task, "AssocGrpCpuLimit", 3000);
    EXPECT_EQ(never.events.size(), 1U);
    Attempt stored;
    ASSERT_TRUE(read_progress(progress_json(*never.task.attempt), stored).ok());
    EXPECT_TRUE(stored.queue_reason.starts_with("AssocGrpCpuLimit (")) << stored.queue_reason;
    EXPECT_EQ(stored.queue_reason_since_ms, 3000);
    EXPECT_EQ(apply(never.task, ended_step(), kPollPolicy, 4000).task.attempt->queue_reason, "") << "it runs";
}

TEST(WaitingTest, AJobThatWouldWaitForEverSaysWhatToDo) {
    const auto told = [](const std::string& reason) {
        return batch_wait({BatchState::kQueued, {}, reason}, Step::kQueued, "12");
    };
    EXPECT_EQ(told("JobHeldUser"),
              "JobHeldUser (batch job 12 is held: `scontrol release 12` at the site lets it go on)");
    const auto has_advice = [&](const std::string& reason, const std::string& advice) {
        const std::string said = told(reason);
        EXPECT_TRUE(said.starts_with(reason + " (batch job 12 ")) << said;
        EXPECT_NE(said.find(advice), std::string::npos) << said;
    };
    has_advice("PartitionTimeLimit", "`scontrol update JobId=12 TimeLimit=TIME`");
    has_advice("AssocGrpCPUMinutesLimit", "has used up the compute time of its account");
    has_advice("QOSGrpBillingMinutes", "has used up the compute time of its account");
    has_advice("AssocGrpCPURunMinutesLimit", "waits until other jobs of its account have ended");
    has_advice("QOSMaxWallDurationPerJobLimit", "cancel the job, and ask for less");
    has_advice("AssocMaxJobsLimit", "once other jobs have ended");
    has_advice("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
               "`sinfo -R`");
    has_advice("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "`sinfo -R`");
    has_advice("ReqNodeNotAvail, Reserved for maintenance", "the end of a maintenance");
    EXPECT_EQ(told("Priority"), "Priority");
    EXPECT_EQ(told(""), "");
}

TEST(WaitingTest, WhatIsOverAtAKnownTimeIsTriedAgainThen) {
    Task task = at_step(Step::kRunning);
    for (int i = 0; i < 20; ++i) {
        const TaskChange change = apply(task, Unreachable{"4 logins are enough", true, 15000}, kPollPolicy, 1000);
        EXPECT_EQ(change.next_in_ms, 15000);
        EXPECT_EQ(change.retry_ms, 15000) << "the whole facility's too";
        task = change.task;
    }
}

// As Apptainer 1.4 says it.
TEST(WaitingTest, AContainerThatDoesNotStartIsTheSitesFault) {
    const char* said = "FATAL:   container creation failed: mount hook function failure: while mounting image";
    EXPECT_TRUE(is_container_not_started(255, said));
    EXPECT_FALSE(is_container_not_started(1, said)) << "the program's own end";
    EXPECT_FALSE(is_container_not_started(255, "mpirun noticed that process rank 1 exited"));
}

}  // namespace
}  // namespace atl::dispatch
