#include "services/dispatch/domain/continuation.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl::dispatch {
namespace {

using json::Json;

Task running_task() {
    Task task;
    task.id = "t1";
    task.job = "j1";
    task.facility = "leonardo";
    task.attempts_max = 2;
    task.params = TrainParams{};
    task = begin_attempt(task).task;
    task.attempt->step = Step::kRunning;
    return task;
}

Observed ended_run(std::int64_t exit_code, const std::vector<Json>& lines = {}) {
    Observed watched;
    watched.started = true;
    watched.exit_code = exit_code;
    for (const Json& line : lines) watched.lines.push_back(line.dump());
    return watched;
}

const Json kOneStep = {{"step", 7}, {"loss", 5.0}};
const Json kAllDone = {{"summary", true}, {"samples", 320}, {"tokens", 40960}, {"loss", 4.5}};

Observed a_step() {
    Observed watched = ended_run(0, {kOneStep});
    watched.exit_code.reset();
    return watched;
}

Observed cut_short() {
    return ended_run(0, {kOneStep, {{"summary", true}, {"steps", 7}, {"resumable", true}}});
}

// A training of 130 steps in a batch job of 100 s, whose first step is 31; `slow_start_s` is what it takes to begin.
class Watched {
  public:
    explicit Watched(std::int64_t slow_start_s) : began_s_(kSubmitted_s + slow_start_s) {
        task_.attempt->since_ms = kSubmitted_s * 1000;
    }
    // Looks when it has made so many steps, after so many seconds of work.
    bool outlives_after(std::int64_t steps, std::int64_t seconds) {
        Observed watched = a_step();
        watched.lines = {Json({{"step", 30 + steps}, {"loss", 5.0}}).dump()};
        watched.looked_ms = (began_s_ + seconds) * 1000;
        task_ = apply(task_, watched, PollPolicy(), watched.looked_ms).task;
        return outlives(*task_.attempt, 130, 100);
    }

  private:
    static constexpr std::int64_t kSubmitted_s = 1000;
    Task task_ = running_task();
    std::int64_t began_s_;
};

TEST(ContinuationTest, ATrainingThatOutlivesItsBatchJobIsKnownByItsPace) {
    EXPECT_FALSE(outlives(*running_task().attempt, 130, 100)) << "nothing is known before the first step";
    Watched slow(0);
    EXPECT_FALSE(slow.outlives_after(1, 1));
    EXPECT_FALSE(slow.outlives_after(2, 3)) << "too little was seen";
    EXPECT_TRUE(slow.outlives_after(10, 15));
    Watched quick(0);
    EXPECT_FALSE(quick.outlives_after(1, 1));
    EXPECT_FALSE(quick.outlives_after(20, 15));
    EXPECT_FALSE(quick.outlives_after(100, 99)) << "it is done";
    Watched stopped(0);
    EXPECT_FALSE(stopped.outlives_after(20, 10));
    EXPECT_FALSE(stopped.outlives_after(21, 11));
    EXPECT_TRUE(stopped.outlives_after(21, 60));
}

TEST(ContinuationTest, HowLongATrainingTakesToBeginSaysNothingOfItsPace) {
    Watched quick(30);
    EXPECT_FALSE(quick.outlives_after(1, 0));
    EXPECT_FALSE(quick.outlives_after(11, 5)) << "35 s for 11 steps, of which 5 s count: 80 s for all";
    EXPECT_FALSE(quick.outlives_after(50, 25));
    Watched slow(30);
    EXPECT_FALSE(slow.outlives_after(1, 0));
    EXPECT_TRUE(slow.outlives_after(11, 10)) << "in time: 130 s for all";
    Watched few(0);  // long steps
    EXPECT_FALSE(few.outlives_after(1, 20));
    EXPECT_FALSE(few.outlives_after(1, 20));
    EXPECT_TRUE(few.outlives_after(2, 40)) << "in time";
}

TEST(ContinuationTest, WhatALongLogHasHeldForLongIsNoPace) {
    Task task = running_task();
    Observed part = a_step();
    part.log_is_drained = false;
    part.looked_ms = 1000;
    task = apply(task, part, PollPolicy(), 1000).task;
    EXPECT_EQ(task.attempt->paced_from_ms, 0);
    Observed rest = a_step();
    rest.lines = {Json({{"step", 5000}, {"loss", 5.0}}).dump()};
    rest.looked_ms = 2000;
    task = apply(task, rest, PollPolicy(), 2000).task;
    EXPECT_EQ(task.attempt->paced_from_step, 5000);
    rest.looked_ms = 1000;
    task = apply(task, rest, PollPolicy(), 1000).task;
    EXPECT_EQ(task.attempt->paced_from_ms, 1000) << "the clock was set back";
}

// A training that runs and whose continuation is in the queue.
Task continued_task() {
    Observed step = a_step();
    step.outlives_its_time = true;
    const TaskChange asked = apply(running_task(), step, PollPolicy(), 0);
    EXPECT_EQ(asked.task.attempt->continuation, kAskedFor) << "kept before it is submitted";
    EXPECT_EQ(asked.next_in_ms, 0);
    Observed submitted;
    submitted.started = true;
    submitted.continuation = "17";
    const Task task = apply(asked.task, submitted, PollPolicy(), 0).task;
    EXPECT_EQ(task.attempt->continuation, "17");
    EXPECT_FALSE(withdraws_continuation(asked.task, task));
    return task;
}

TEST(ContinuationTest, OneThatCannotBePutIntoTheQueueIsTriedAgainAfterLongerAndLongerPauses) {
    Observed step = a_step();
    step.outlives_its_time = true;
    Task task = apply(running_task(), step, PollPolicy(), 1).task;
    EXPECT_TRUE(should_submit_continuation(*task.attempt, 1));
    Observed refused = a_step();
    refused.no_continuation = "no continuation in the queue: AssocMaxSubmitJobLimit";
    std::vector<std::int64_t> pauses;
    for (std::int64_t now_ms = 1; pauses.size() < 30;) {
        task = apply(task, refused, PollPolicy(), now_ms).task;
        EXPECT_EQ(task.attempt->continuation, kAskedFor);
        ASSERT_TRUE(task.attempt->continuation_waiting);
        EXPECT_EQ(task.attempt->continuation_waiting->reason, refused.no_continuation);
        EXPECT_EQ(task.attempt->continuation_waiting->since_ms, 1);
        const std::int64_t next_ms = task.attempt->continuation_waiting->next_ms;
        EXPECT_FALSE(should_submit_continuation(*task.attempt, next_ms - 1));
        EXPECT_TRUE(should_submit_continuation(*task.attempt, next_ms));
        pauses.push_back(next_ms - now_ms);
        now_ms = next_ms;
    }
    EXPECT_TRUE(std::is_sorted(pauses.begin(), pauses.end()));
    EXPECT_EQ(pauses.front(), PollPolicy().retry_ms);
    EXPECT_EQ(pauses.back(), PollPolicy().retry_ms_max);
    Attempt read;
    ASSERT_TRUE(read_progress(progress_json(*task.attempt), read).ok());
    EXPECT_EQ(read.continuation_waiting, task.attempt->continuation_waiting);
    Observed submitted = a_step();
    submitted.continuation = "17";
    task = apply(task, submitted, PollPolicy(), 2'000'000'000).task;
    EXPECT_FALSE(task.attempt->continuation_waiting);
    EXPECT_FALSE(should_submit_continuation(*task.attempt, 2'000'000'000));
}

TEST(ContinuationTest, OneWhoseSubmissionIsRefusedMayRun) {
    Task task = begin_attempt(apply(continued_task(), cut_short(), PollPolicy(), 0).task).task;
    ASSERT_EQ(task.attempt->step, Step::kSubmitting);
    const Outcome refused = outcome_of(task, invalid_argument("image.sha256", "it is another image"));
    EXPECT_TRUE(leaves_batch_job(task, apply(task, refused, PollPolicy(), 0).task));
    EXPECT_FALSE(leaves_batch_job(task, apply(task, Unreachable{"away"}, PollPolicy(), 0).task));
    const Task running = continued_task();
    EXPECT_FALSE(leaves_batch_job(running, apply(running, ended_run(1), PollPolicy(), 0).task)) << "it has ended";
}

TEST(ContinuationTest, AnAttemptThatIsCutShortMakesWayForItsContinuation) {
    const Task task = continued_task();
    EXPECT_EQ(batch_job_name(continuation_of(task)), "atoll-t1-2");
    Observed killed = ended_run(137);
    killed.queue_status = BatchAnswer{BatchState::kEnded, BatchEnd::kNodeFailure, "NODE_FAIL"};
    for (const Observed& end : {cut_short(), killed}) {
        Task after = apply(task, end, PollPolicy(), 0).task;
        EXPECT_FALSE(withdraws_continuation(task, after));
        after.cancel_requested = true;
        EXPECT_TRUE(is_continued(after)) << "it is there to be cancelled";
        after = begin_attempt(after).task;
        EXPECT_EQ(batch_job_name(after), "atoll-t1-2");
        EXPECT_EQ(after.attempt->step, Step::kSubmitting) << "it may run: its job is looked for";
        EXPECT_TRUE(after.attempt->continuation.empty());
    }
}

TEST(ContinuationTest, AnyOtherEndWithdrawsTheContinuationAndPassesItsNumberOver) {
    const Task task = continued_task();
    const Task whole = apply(task, ended_run(0, {kAllDone}), PollPolicy(), 0).task;
    EXPECT_TRUE(withdraws_continuation(task, whole));
    const Task done = apply(whole, Collected{{{"version", "v"}}}, PollPolicy(), 0).task;
    EXPECT_FALSE(withdraws_continuation(whole, done)) << "it was";
    const Task failed = apply(task, ended_run(1), PollPolicy(), 0).task;
    EXPECT_TRUE(withdraws_continuation(task, failed));
    const Task refused = apply(whole, refuse_update(conflict("another version")), PollPolicy(), 0).task;
    for (const Task& ended : {failed, refused}) {
        EXPECT_FALSE(is_continued(ended));
        const Task next = begin_attempt(ended).task;
        EXPECT_EQ(next.attempt->number, 3);
        EXPECT_EQ(next.attempt->step, Step::kStaging);
        EXPECT_EQ(next.attempt->failed_before, 1);
    }
}

TEST(ContinuationTest, RunsThatAreToldToStopBeforeTheirFirstStepComeToAnEnd) {
    const Observed idle = ended_run(0, {{{"summary", true}, {"steps", 0}, {"resumable", true}}});
    Task task = running_task();
    int attempts = 0;
    for (; attempts < 100 && task.attempt->step != Step::kFailed; ++attempts) {
        if (attempts > 0) task = begin_attempt(task).task;
        task.attempt->step = Step::kRunning;
        task = apply(task, idle, PollPolicy(), 0).task;
    }
    EXPECT_GT(attempts, 1) << "a signal may come while it starts";
    EXPECT_LT(attempts, 10);
    EXPECT_FALSE(task.attempt->error.empty());
}

TEST(ContinuationTest, WhoGivesUpIsToldOfAllThatMayStillRun) {
    const Task task = continued_task();
    EXPECT_TRUE(abandon(task, "ada").error.ends_with("its batch job atoll-t1-1, atoll-t1-2 may still run"));
    const Task after = apply(task, cut_short(), PollPolicy(), 0).task;
    EXPECT_TRUE(abandon(after, "ada").error.ends_with("its batch job atoll-t1-2 may still run"));
}

TEST(ContinuationTest, ATrainerThatIsKilledGoesOnFromItsStateUnlessItsMemoryRanOut) {
    Observed killed = ended_run(137, {{{"step", 35}, {"loss", 5.0}}});
    for (const BatchEnd end : {BatchEnd::kFailed, BatchEnd::kUnknown}) {
        killed.queue_status = BatchAnswer{BatchState::kEnded, end, "FAILED"};
        EXPECT_EQ(apply(running_task(), killed, PollPolicy(), 6).task.attempt->step, Step::kInterrupted);
    }
    killed.queue_status.reset();
    EXPECT_EQ(apply(running_task(), killed, PollPolicy(), 6).task.attempt->step, Step::kInterrupted)
        << "the local batch system has no word of its own";
    killed.queue_status = BatchAnswer{BatchState::kEnded, BatchEnd::kOutOfMemory, "OUT_OF_MEMORY"};
    EXPECT_EQ(apply(running_task(), killed, PollPolicy(), 6).task.attempt->step, Step::kFailed);
}

TEST(ContinuationTest, AJobThatItsSiteRequeuesMakesWayForTheNextAttempt) {
    Observed told = ended_run(143, {kOneStep});
    told.queue_status = BatchAnswer{BatchState::kQueued, {}, "BeginTime"};
    EXPECT_EQ(apply(running_task(), told, PollPolicy(), 6).task.attempt->step, Step::kInterrupted);
    Task task = running_task();
    Observed wordless = a_step();
    wordless.queue_status = told.queue_status;
    for (int answers = 1; answers <= 3; ++answers) {
        EXPECT_EQ(task.attempt->step, Step::kRunning) << "an answer may be older than its start";
        wordless.batch_asked_ms = answers * PollPolicy().missing_ms;
        task = apply(task, wordless, PollPolicy(), wordless.batch_asked_ms).task;
    }
    EXPECT_EQ(task.attempt->step, Step::kInterrupted);
    EXPECT_EQ(begin_attempt(task).task.attempt->failed_before, 0);
}

TEST(ContinuationTest, InterruptionsBetweenWhichNoStateIsSavedComeToAnEnd) {
    const auto interruptions = [](std::int64_t saved_each_time) {
        Task task = running_task();
        for (std::int64_t count = 0; count < 100; ++count) {
            const std::int64_t first = 1 + count * saved_each_time;
            task = apply(task, ended_run(137, {{{"step", first}, {"loss", 5.0}}}), PollPolicy(), 0).task;
            if (task.attempt->step == Step::kFailed) return count;
            task = begin_attempt(task).task;
            task.attempt->step = Step::kRunning;
        }
        return std::int64_t{100};
    };
    EXPECT_LT(interruptions(0), 10) << "each begins anew";
    EXPECT_EQ(interruptions(10), 100);
}

}  // namespace
}  // namespace atl::dispatch
