#include "services/dispatch/domain/task_machine.h"

#include <gtest/gtest.h>

#include "services/dispatch/testing/task_steps.h"
#include "shared/base/error_words.h"

namespace atl::dispatch {
namespace {

using json::Json;

Task evaluate_task() {
    Task task = at_step(Step::kRunning);
    task.params = EvaluateParams{"d", "p", {{"g", "global"}, {"u", "leonardo"}}};
    return task;
}

TEST(TaskMachineTest, ARunThatStoppedForTimeGoesOnInTheNextAttempt) {
    Task task = at_step(Step::kRunning);
    for (int attempt = 1; attempt <= 20; ++attempt) {  // more than attempts_max
        const TaskChange change = apply(task, out_of_time(attempt), kPollPolicy, 0);
        ASSERT_EQ(change.task.state, TaskState::kPending) << change.task.error;
        EXPECT_EQ(change.next_in_ms, 0);
        task = begin_attempt(change.task).task;
        EXPECT_EQ(task.attempt->number, attempt + 1);
        EXPECT_EQ(task.attempt->failed_before, 0);
        task.attempt->step = Step::kRunning;
    }
    EXPECT_GT(apply(task, out_of_time(21), kPollPolicy, 0).next_in_ms, 0) << "a site may stop after each step";
    EXPECT_EQ(apply(task, ended(0, {kSummary}), kPollPolicy, 0).task.attempt->step, Step::kCollecting);
}

TEST(TaskMachineTest, ARunThatStopsForTimeAndComesNoFurtherEndsItsTask) {
    Task task = at_step(Step::kRunning);
    int attempts = 0;
    for (; task.state != TaskState::kFailed && attempts < 100; ++attempts) {
        const int first_step = attempts % 2 == 0 ? 7 : 3;  // going back and forth is no way forward
        task = apply(task, out_of_time(first_step), kPollPolicy, 0).task;
        if (task.state == TaskState::kFailed) break;
        task = begin_attempt(task).task;
        task.attempt->step = Step::kRunning;
    }
    EXPECT_LT(attempts, 20);
    EXPECT_NE(task.error.find("before it came further"), std::string::npos) << task.error;
}

TEST(TaskMachineTest, ATrainingWhoseRanksDoNotReachOneAnotherWaitsForThatUntilItMakesAStep) {
    Task task = at_step(Step::kRunning);
    task.attempt->since_ms = 1000;
    Observed look;
    look.started = true;
    EXPECT_FALSE(may_tell_no_step(task, look, 31'000)) << "a model takes its time to load";
    EXPECT_TRUE(may_tell_no_step(task, look, 41'000));
    EXPECT_FALSE(may_tell_no_step(task, ended_step(), 41'000));
    EXPECT_FALSE(may_tell_no_step(task, ended(1), 41'000));
    EXPECT_FALSE(may_tell_no_step(evaluate_task(), look, 1'000'000'000));
    look.no_step = "rank 1 of 4 on node7 has waited 30 s";
    TaskChange change = apply(task, look, kPollPolicy, 41'000);
    EXPECT_TRUE(change.is_news);
    ASSERT_TRUE(change.task.attempt->waiting);
    EXPECT_EQ(change.task.attempt->waiting->reason, look.no_step);
    EXPECT_EQ(change.task.attempt->step_failures, 0) << "its site answers";
    change = apply(change.task, look, kPollPolicy, 71'000);
    EXPECT_FALSE(change.is_news);
    EXPECT_EQ(change.task.attempt->waiting->since_ms, 41'000);
    EXPECT_EQ(change.task.attempt->waiting->next_ms, 71'000 + change.next_in_ms);
    EXPECT_FALSE(apply(change.task, ended_step(), kPollPolicy, 72'000).task.attempt->waiting);
    change = apply(change.task, Unreachable{"no connection"}, kPollPolicy, 80'000);
    EXPECT_EQ(change.task.attempt->waiting->since_ms, 80'000) << "another reason, from now on";
    change = apply(change.task, look, kPollPolicy, 90'000);
    EXPECT_EQ(change.task.attempt->waiting->since_ms, 90'000);
    EXPECT_EQ(change.task.attempt->error, "");
}

TEST(TaskMachineTest, OnlyFailedAttemptsCountAgainstTheirMaximum) {
    Task task = begin_attempt(apply(at_step(Step::kRunning), out_of_time(), kPollPolicy, 0).task).task;
    task.attempt->step = Step::kRunning;
    task = apply(task, ended(1), kPollPolicy, 0).task;
    ASSERT_EQ(task.state, TaskState::kPending) << "the first of two";
    task = begin_attempt(task).task;
    task.attempt->step = Step::kRunning;
    EXPECT_EQ(apply(task, ended(1), kPollPolicy, 0).task.state, TaskState::kFailed);
}

TEST(TaskMachineTest, AnAttemptRemembersItsPhases) {
    Task task = train_task();
    task = apply(task, Moving{0, 100, {}}, kPollPolicy, 1000).task;
    task = apply(task, Moving{100, 100, {}}, kPollPolicy, 2000).task;
    task = apply(task, Staged{100}, kPollPolicy, 3000).task;
    task = apply(task, Submitted{"123"}, kPollPolicy, 4000).task;
    Observed running;
    running.started = true;
    task = apply(task, running, kPollPolicy, 9000).task;
    const std::vector<PastPhase> phases = {{Step::kStaging, 1000, 3000, 100}, {Step::kQueued, 4000, 9000, 0}};
    EXPECT_EQ(task.attempt->phases, phases);
    Attempt again;
    ASSERT_TRUE(read_progress(progress_json(*task.attempt), again).ok());
    EXPECT_EQ(again.phases, phases);
    EXPECT_TRUE(begin_attempt(apply(task, ended(1), kPollPolicy, 9500).task).task.attempt->phases.empty());
}

TEST(TaskMachineTest, ATransferThatNobodySawUnderWayHasItsBytesAndItsTime) {
    Task task = apply(train_task(), Staged{64}, kPollPolicy, 1000, 250).task;
    const std::vector<PastPhase> staged = {{Step::kStaging, 1000, 1250, 64}};
    EXPECT_EQ(task.attempt->phases, staged);
    task.attempt->step = Step::kCollecting;
    task = apply(task, Collected{{{"version", "v"}}, 12}, kPollPolicy, 5000, 500).task;
    EXPECT_EQ(task.attempt->phases.back(), (PastPhase{Step::kCollecting, 5000, 5500, 12}));
    task = apply(at_step(Step::kStaging), Moving{7, 42}, kPollPolicy, 1000).task;
    task = apply(task, Cancelled{}, kPollPolicy, 2000).task;
    EXPECT_EQ(task.attempt->phases.back().bytes, 7) << "the rest has not moved";
}

TEST(TaskMachineTest, ATrainingTaskGoesFromStagingToDone) {
    Task task = train_task();
    EXPECT_EQ(batch_job_name(task), "atoll-t1-1");
    task = apply(task, Staged{}, kPollPolicy, 0).task;
    EXPECT_EQ(task.attempt->step, Step::kSubmitting);
    task = apply(task, Submitted{"123"}, kPollPolicy, 0).task;
    EXPECT_EQ(task.attempt->step, Step::kQueued);
    EXPECT_EQ(task.attempt->batch_id, "123");
    Observed first;
    first.started = true;
    first.lines = printed({{{"step", 1}, {"loss", 9.5}, {"tokens_per_s", 100.0}}});
    first.log_offset = 40;
    const TaskChange running = apply(task, first, kPollPolicy, 0);
    EXPECT_EQ(running.task.attempt->step, Step::kRunning);
    EXPECT_EQ(running.task.attempt->log_offset, 40);
    ASSERT_EQ(running.events.size(), 2U);
    EXPECT_EQ(running.events[0].type, "atoll.task.running.v1");
    EXPECT_EQ(running.events[1].type, "atoll.task.progress.v1");
    EXPECT_EQ(running.events[1].data.at("loss"), 9.5);
    task = apply(running.task, ended(0, {kSummary}), kPollPolicy, 0).task;
    EXPECT_EQ(task.attempt->step, Step::kCollecting);
    const TaskChange done = apply(task, Collected{{{"version", "v"}}}, kPollPolicy, 0);
    EXPECT_EQ(done.task.state, TaskState::kDone);
    EXPECT_EQ(done.task.result.at("version"), "v");
    EXPECT_EQ(done.events.at(0).type, "atoll.task.done.v1");
}

TEST(TaskMachineTest, WhereALaterAttemptBeginsIsTold) {
    Observed steps;
    steps.started = true;
    steps.lines = printed({{{"step", 1}, {"loss", 9.5}}, {{"step", 2}, {"loss", 9.0}}});
    TaskChange change = apply(at_step(Step::kRunning), steps, kPollPolicy, 0);
    EXPECT_FALSE(change.events.at(0).data.contains("first_step")) << "the first attempt begins at the beginning";
    Task second = begin_attempt(apply(change.task, ended(137), kPollPolicy, 0).task).task;
    second.attempt->step = Step::kRunning;
    change = apply(second, steps, kPollPolicy, 0);
    EXPECT_EQ(change.events.at(0).data.at("first_step"), 1);
    EXPECT_EQ(change.task.attempt->begun_at_step, 1);
    change = apply(change.task, steps, kPollPolicy, 0);
    EXPECT_FALSE(change.events.at(0).data.contains("first_step")) << "said once";
}

TEST(TaskMachineTest, WhatMovesIsLookedAtAgainAndIsNoFailure) {
    TaskChange change = apply(at_step(Step::kStaging), Moving{7, 42}, kPollPolicy, 1000);
    EXPECT_EQ(change.task.attempt->step, Step::kStaging);
    EXPECT_EQ(change.next_in_ms, kPollPolicy.poll_ms);
    EXPECT_TRUE(change.events.empty() && !change.is_news);
    EXPECT_EQ(change.task.attempt->bytes_done, 7);
    EXPECT_EQ(change.task.attempt->bytes_total, 42);
    Task task = apply(change.task, Unreachable{"the store is away"}, kPollPolicy, 2000).task;
    task = apply(task, Moving{7, 42}, kPollPolicy, 3000).task;
    EXPECT_EQ(task.attempt->step_failures, 1) << "what fails at one place again and again is not mended by waiting";
    task = apply(task, Moving{8, 42}, kPollPolicy, 3000).task;
    EXPECT_EQ(task.attempt->step_failures, 0);
    EXPECT_EQ(apply(task, Moving{9, 42, 0}, kPollPolicy, 90000).next_in_ms, 0) << "it goes on with its next step";
    task = apply(task, Staged{}, kPollPolicy, 4000).task;
    EXPECT_EQ(task.attempt->bytes_total, 0);
}

TEST(TaskMachineTest, TheBatchSystemIsAskedInTimeAndWhenTheClockWasSetBack) {
    Attempt attempt;
    attempt.batch_asked_ms = 100'000;
    EXPECT_FALSE(should_ask_batch(attempt, kPollPolicy, 100'000 + kPollPolicy.batch_poll_ms - 1));
    EXPECT_TRUE(should_ask_batch(attempt, kPollPolicy, 100'000 + kPollPolicy.batch_poll_ms));
    EXPECT_TRUE(should_ask_batch(attempt, kPollPolicy, 50'000));
}

TEST(TaskMachineTest, AFailedAttemptMakesANewOneUntilTheMaximum) {
    const TaskChange first = apply(at_step(Step::kRunning), ended(1), kPollPolicy, 0);
    EXPECT_EQ(first.task.state, TaskState::kPending);
    EXPECT_GT(first.next_in_ms, 0);
    ASSERT_EQ(first.events.size(), 1U) << "whoever watches learns why there is another attempt";
    EXPECT_EQ(first.events[0].type, "atoll.task.retrying.v1");
    EXPECT_EQ(first.events[0].data.at("attempt"), 1);
    Task second = begin_attempt(first.task).task;
    EXPECT_EQ(batch_job_name(second), "atoll-t1-2");
    second.attempt->step = Step::kRunning;
    Observed with_tail = ended(1);
    with_tail.stderr_tail = "out of luck";
    const TaskChange last = apply(second, with_tail, kPollPolicy, 0);
    EXPECT_EQ(last.task.state, TaskState::kFailed);
    for (const char* said : {"leonardo", "train", "round 2", "attempt 2", "exit code 1: out of luck"})
        EXPECT_NE(last.task.error.find(said), std::string::npos) << last.task.error;
    EXPECT_EQ(last.events.at(0).type, "atoll.task.failed.v1");
}

TEST(TaskMachineTest, BadInputIsNotTriedAgain) {
    const TaskChange change = apply(at_step(Step::kRunning), ended(2), kPollPolicy, 0);
    EXPECT_EQ(change.task.state, TaskState::kFailed);
    const TaskChange staging = apply(train_task(), Rejected{"no such version", true}, kPollPolicy, 0);
    EXPECT_EQ(staging.task.state, TaskState::kFailed);
}

TEST(TaskMachineTest, WhatDoesNotFitIntoMemoryIsNotTriedAgain) {
    Observed too_large = ended(3);
    too_large.stderr_tail = "this run needs 70 GiB a rank and there are 60 GiB";
    const TaskChange change = apply(at_step(Step::kRunning), too_large, kPollPolicy, 0);
    EXPECT_EQ(change.task.state, TaskState::kFailed);
    EXPECT_TRUE(change.task.error.ends_with(": " + too_large.stderr_tail)) << change.task.error;
}

TEST(TaskMachineTest, SilenceNeverFailsAnAttemptAndIsAskedLessAndLess) {
    Task task = at_step(Step::kRunning);
    std::int64_t before = 0;
    for (int i = 0; i < 40; ++i) {
        const TaskChange change = apply(task, Unreachable{"no route"}, kPollPolicy, 0);
        EXPECT_EQ(change.task.state, TaskState::kRunning);
        EXPECT_EQ(change.task.attempt->step, Step::kRunning);
        EXPECT_GE(change.next_in_ms, before);
        EXPECT_LE(change.next_in_ms, kPollPolicy.retry_ms_max);
        before = change.next_in_ms;
        task = change.task;
    }
    EXPECT_EQ(before, kPollPolicy.retry_ms_max);
    EXPECT_EQ(apply(task, Observed{}, kPollPolicy, 0).task.attempt->step_failures, 0) << "an answer ends the silence";
}

TEST(TaskMachineTest, AStepThatIsRefusedIsRepeatedAFewTimes) {
    Task task = at_step(Step::kStaging);
    for (std::int64_t i = 1; i < kPollPolicy.step_failures_max; ++i) {
        task = apply(task, Rejected{"disk full"}, kPollPolicy, 0).task;
        ASSERT_EQ(task.attempt->step, Step::kStaging);
    }
    task = apply(task, Rejected{"disk full"}, kPollPolicy, 0).task;
    EXPECT_EQ(task.attempt->step, Step::kFailed);
    EXPECT_EQ(task.state, TaskState::kPending);
}

TEST(TaskMachineTest, WhatWasTrainedIsHandedInWhateverStandsInTheWay) {
    for (const auto& code : error_codes()) {
        const Error error{code.value, "in the way", "field"};
        Task task = at_step(Step::kCollecting);
        TaskChange change;
        for (int i = 0; i < 40; ++i, task = change.task) {
            change = apply(task, outcome_of(task, error), kPollPolicy, 0);
            ASSERT_EQ(change.task.attempt->step, Step::kCollecting) << to_string(error.code);
            ASSERT_EQ(change.events.size(), i + 1 == kPollPolicy.step_failures_max ? 1U : 0U) << "it is told once";
            for (const DomainEvent& event : change.events) EXPECT_EQ(event.type, "atoll.task.waiting.v1");
        }
        EXPECT_EQ(change.next_in_ms, kPollPolicy.retry_ms_max);
        EXPECT_NE(task.attempt->error.find("in the way"), std::string::npos);
        EXPECT_EQ(apply(task, Collected{{{"version", "v"}}}, kPollPolicy, 0).task.state, TaskState::kDone);
    }
}

TEST(TaskMachineTest, ARefusedUpdateEndsItsAttemptAndWrongFilesTheirTask) {
    const Error gone = conflict("another version was handed in");
    const Task again = apply(at_step(Step::kCollecting), refuse_update(gone), kPollPolicy, 0).task;
    EXPECT_EQ(again.attempt->step, Step::kFailed);
    EXPECT_EQ(again.state, TaskState::kPending);
    const Task failed = apply(at_step(Step::kCollecting), refuse_update(gone, true), kPollPolicy, 0).task;
    EXPECT_EQ(failed.state, TaskState::kFailed);
    EXPECT_NE(failed.error.find("another version"), std::string::npos);
}

TEST(TaskMachineTest, OnlyAWordAboutWhatIsStagedEndsAnAttempt) {
    for (const Step step : {Step::kStaging, Step::kQueued, Step::kRunning}) {
        const Task task = at_step(step);
        for (const Error& trouble :
             {unavailable("away"), internal_error("the service answered 500"), permission_denied("not this token"),
              not_found("the service answered 404"), unreadable("not valid JSON"),
              with_cause(invalid_argument("", "the proxy answered 400"), Cause::kElsewhere),
              Error{ErrorCode::kInsufficientStorage, "the disk is full", "disk"}})
            EXPECT_TRUE(std::holds_alternative<Unreachable>(outcome_of(task, trouble))) << trouble.message;
        const Error none = with_cause(not_found("there is no such version"), Cause::kService);
        EXPECT_FALSE(std::get<Rejected>(outcome_of(task, none)).is_permanent);
        EXPECT_FALSE(std::get<Rejected>(outcome_of(task, conflict("other bytes"))).is_permanent);
        EXPECT_TRUE(std::get<Rejected>(outcome_of(task, invalid_argument("version", "no such"))).is_permanent);
    }
}

TEST(TaskMachineTest, WhatABatchSystemOrACleaningSaysIsMeant) {
    EXPECT_TRUE(std::holds_alternative<Rejected>(outcome_of(at_step(Step::kSubmitting), internal_error("no queue"))));
    Task cleaning = cleaning_task("leonardo");
    cleaning = begin_attempt(cleaning).task;
    EXPECT_TRUE(std::holds_alternative<Rejected>(outcome_of(cleaning, internal_error("cannot remove"))));
    EXPECT_TRUE(std::holds_alternative<Unreachable>(outcome_of(cleaning, unavailable("away"))));
}

Observed answered(BatchState state, std::int64_t asked_ms) {
    Observed watched;
    watched.queue_status = BatchAnswer{state, {}, {}};
    watched.batch_asked_ms = asked_ms;
    return watched;
}

TEST(TaskMachineTest, AJobIsLostOnlyAfterSeveralGoodAnswersApartInTime) {
    const auto after = [](const Task& task, BatchState state, std::int64_t asked_ms) {
        return apply(task, answered(state, asked_ms), kPollPolicy, asked_ms).task;
    };
    Task task = at_step(Step::kRunning);
    for (int i = 0; i < 10; ++i) task = after(task, BatchState::kUnknownToQueue, 1000);
    EXPECT_EQ(task.state, TaskState::kRunning) << "many answers at once are one";
    task.attempt->queue_misses = 1;
    task = after(task, BatchState::kUnknownToQueue, 1000 + kPollPolicy.missing_ms);
    EXPECT_EQ(task.state, TaskState::kRunning) << "two answers are too few";
    const Task found_again = after(task, BatchState::kRunning, 1000 + kPollPolicy.missing_ms);
    EXPECT_EQ(after(found_again, BatchState::kUnknownToQueue, 9000 + kPollPolicy.missing_ms).state,
              TaskState::kRunning);
    task = after(task, BatchState::kUnknownToQueue, 2000 + kPollPolicy.missing_ms);
    EXPECT_EQ(task.state, TaskState::kPending);
    EXPECT_EQ(task.attempt->step, Step::kInterrupted);
}

// What a batch system ends fails by its signals.
TEST(TaskMachineTest, AnEndByTheBatchSystemIsNoFailureOfTheTraining) {
    Observed killed = ended(143, {{{"step", 7}, {"loss", 5.0}}});
    killed.queue_status = BatchAnswer{BatchState::kRunning, {}, ""};
    killed.batch_asked_ms = 5;
    const TaskChange ending = apply(at_step(Step::kRunning), killed, kPollPolicy, 5);
    EXPECT_EQ(ending.task.attempt->step, Step::kRunning) << "the job is still being ended";
    EXPECT_EQ(ending.task.attempt->batch_asked_ms, 5);
    EXPECT_EQ(ending.next_in_ms, kPollPolicy.poll_ms);
    killed.queue_status = BatchAnswer{BatchState::kEnded, BatchEnd::kTimeLimit, "TIMEOUT: TimeLimit"};
    const TaskChange interrupted = apply(ending.task, killed, kPollPolicy, 6);
    EXPECT_EQ(interrupted.task.attempt->step, Step::kInterrupted);
    EXPECT_EQ(interrupted.task.attempt->error,
              "its batch job reached its time limit (TIMEOUT: TimeLimit); exit code 143");
    EXPECT_EQ(begin_attempt(interrupted.task).task.attempt->failed_before, 0);
    for (const auto& [end, why] :
         std::map<BatchEnd, std::string>{{BatchEnd::kFailed, "exit code 143"},
                                         {BatchEnd::kOutOfMemory,
                                          "its batch job ran out of memory (OUT_OF_MEMORY); exit code 143; raise "
                                          "`memory` of its resources, or lower "
                                          "batch_size"}}) {
        killed.queue_status = BatchAnswer{BatchState::kEnded, end, "OUT_OF_MEMORY"};
        const TaskChange failed = apply(at_step(Step::kRunning), killed, kPollPolicy, 6);
        EXPECT_EQ(failed.task.attempt->step, Step::kFailed);
        EXPECT_EQ(failed.task.attempt->error, why);
    }
    killed.queue_status = BatchAnswer{};
    EXPECT_EQ(apply(at_step(Step::kRunning), killed, kPollPolicy, 6).task.attempt->step, Step::kFailed)
        << "the batch system has forgotten it";
    for (const std::int64_t final : {0, 2, 3}) EXPECT_FALSE(may_be_interrupted(final));
}

TEST(TaskMachineTest, WhatIsSeenOfAnAttemptCountsWithoutTheQueuesWord) {
    Observed seen = ended_step();
    seen.no_queue_status = "squeue gives no answer";
    const TaskChange first = apply(at_step(Step::kRunning), seen, kPollPolicy, 1000);
    EXPECT_EQ(first.task.attempt->last_step->step, 7);
    ASSERT_TRUE(first.task.attempt->waiting);
    EXPECT_EQ(first.task.attempt->waiting->reason, "squeue gives no answer");
    const TaskChange second = apply(first.task, seen, kPollPolicy, 2000);
    EXPECT_EQ(second.task.attempt->waiting->since_ms, 1000);
    EXPECT_GT(second.next_in_ms, first.next_in_ms) << "the pauses grow";
    seen.no_queue_status.clear();
    EXPECT_FALSE(apply(second.task, seen, kPollPolicy, 3000).task.attempt->waiting);
}

TEST(TaskMachineTest, AJobThatIsLostIsNoticedThoughTheClockWasSetBack) {
    Task task = at_step(Step::kRunning);
    const auto miss = [&](std::int64_t asked_ms) {
        task = apply(task, answered(BatchState::kUnknownToQueue, asked_ms), kPollPolicy, asked_ms).task;
    };
    miss(86'400'000);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(task.state, TaskState::kRunning) << i;
        miss(1000 + i * kPollPolicy.missing_ms / 2);
    }
    EXPECT_EQ(task.state, TaskState::kPending);
}

TEST(TaskMachineTest, TheLogIsReadToItsEndBeforeTheExitCodeCounts) {
    Observed more = ended(0, {});
    more.log_is_drained = false;
    Task task = apply(at_step(Step::kRunning), more, kPollPolicy, 0).task;
    EXPECT_EQ(task.attempt->step, Step::kRunning);
    task = apply(task, ended(0, {kSummary}), kPollPolicy, 0).task;
    EXPECT_EQ(task.attempt->step, Step::kCollecting);
}

TEST(TaskMachineTest, ALogWithoutEndIsReadAtThePaceOfPollsAndThenRefused) {
    Observed more;
    more.log_is_drained = false;
    Task task = at_step(Step::kRunning);
    std::int64_t at_once = 0;
    std::int64_t wait = 0;
    for (int i = 0; i < 200; ++i) {
        const TaskChange change = apply(task, more, kPollPolicy, 0);
        wait = change.next_in_ms;
        at_once += wait == 0 ? 1 : 0;
        task = change.task;
    }
    EXPECT_EQ(wait, kPollPolicy.poll_ms);
    EXPECT_LT(at_once, 100);
    EXPECT_GT(at_once, 10) << "what was written while nobody looked is read soon";
    EXPECT_EQ(apply(apply(task, Observed{}, kPollPolicy, 0).task, more, kPollPolicy, 0).next_in_ms, 0)
        << "it was drained between";
    more.log_offset = (std::int64_t{1} << 30) + 1;
    EXPECT_EQ(apply(task, more, kPollPolicy, 0).task.attempt->step, Step::kFailed);
}

TEST(TaskMachineTest, AnEvaluationOfMoreModelsThanThereAreIsRefusedAtOnce) {
    Observed lines;
    lines.lines = printed({{{"perplexity", 1}}, {{"perplexity", 1}}});
    lines.log_is_drained = false;
    const Task task = apply(evaluate_task(), lines, kPollPolicy, 0).task;
    EXPECT_EQ(task.attempt->step, Step::kRunning);
    const Task refused = apply(task, lines, kPollPolicy, 0).task;
    EXPECT_EQ(refused.attempt->step, Step::kFailed);
}

TEST(TaskMachineTest, ATrainerWithoutItsSummaryHasFailed) {
    const TaskChange change = apply(at_step(Step::kRunning), ended(0), kPollPolicy, 0);
    EXPECT_EQ(change.task.attempt->step, Step::kFailed);
}

TEST(TaskMachineTest, AnEvaluationSaysOfWhichModelsItHasResults) {
    Task queued = evaluate_task();
    queued.attempt->step = Step::kQueued;
    Observed watched;
    watched.started = true;
    watched.log_is_drained = true;
    const TaskChange begun = apply(queued, watched, kPollPolicy, 0);
    ASSERT_EQ(begun.events.size(), 2U);
    EXPECT_EQ(begun.events[1].type, "atoll.task.evaluating.v1");
    EXPECT_EQ(begun.events[1].data.at("models"), 2);
    EXPECT_EQ(begun.events[1].data.at("models_done"), 0);
    EXPECT_EQ(begun.events[1].data.at("model"), "global");
    watched.lines = printed({{{"loss", 2.0}, {"perplexity", 7.4}, {"tokens", 100}}});
    const TaskChange later = apply(begun.task, watched, kPollPolicy, 0);
    ASSERT_EQ(later.events.size(), 1U);
    EXPECT_EQ(later.events[0].data.at("models_done"), 1);
    EXPECT_EQ(later.events[0].data.at("model"), "leonardo");
    EXPECT_TRUE(later.events[0].data.contains("dataset"));
    watched.lines = {};
    EXPECT_TRUE(apply(later.task, watched, kPollPolicy, 0).events.empty()) << "nothing new";
}

TEST(TaskMachineTest, AnEvaluationNeedsOneLineAModel) {
    const Json line = {{"loss", 2.0}, {"perplexity", 7.4}, {"tokens", 100}};
    const TaskChange done = apply(evaluate_task(), ended(0, {line, line}), kPollPolicy, 0);
    ASSERT_EQ(done.task.state, TaskState::kDone) << done.task.error;
    EXPECT_EQ(done.task.result.at("evaluations").at(1).at("which"), "leonardo");
    EXPECT_EQ(done.task.result.at("evaluations").at(1).at("perplexity"), 7.4);
    EXPECT_EQ(apply(evaluate_task(), ended(0, {line}), kPollPolicy, 0).task.attempt->step, Step::kFailed);
}

TEST(TaskMachineTest, AnEvaluationOfMoreTokensThanThereAreFails) {
    const Json line = {{"loss", 2.0}, {"perplexity", 7.4}, {"tokens", 100}};
    Task task = evaluate_task();
    std::get<EvaluateParams>(task.params).tokens_max = 100;
    EXPECT_EQ(apply(task, ended(0, {line, line}), kPollPolicy, 0).task.state, TaskState::kDone);
    std::get<EvaluateParams>(task.params).tokens_max = 99;
    const Task failed = apply(task, ended(0, {line, line}), kPollPolicy, 0).task;
    EXPECT_EQ(failed.attempt->step, Step::kFailed);
    EXPECT_NE(failed.attempt->error.find("the dataset version has 99"), std::string::npos) << failed.attempt->error;
}

TEST(TaskMachineTest, WhatIsUnknownInATrainersLinesGoesNowhere) {
    Json summary = kSummary;
    summary["note"] = std::string("a\0b", 3);
    summary[std::string("a\0b", 3)] = 1;
    const Task task = apply(at_step(Step::kRunning), ended(0, {summary}), kPollPolicy, 0).task;
    ASSERT_TRUE(task.attempt->summary);
    Json kept = kSummary;
    kept["resumable"] = false;
    EXPECT_EQ(to_json(*task.attempt->summary), kept);
}

TEST(TaskMachineTest, AStepThatTheTrainingDoesNotHaveIsPassedOver) {
    for (const Json& training : {Json{{"steps", 20}}, Json{{"epochs", 2}}}) {
        Task task = at_step(Step::kRunning);
        auto& train = std::get<TrainParams>(task.params);
        train.training = training;
        train.rows = 10;
        Observed look;
        look.lines = {R"({"step":9007199254740992,"loss":2.5})", R"({"step":21,"loss":2.5})"};
        TaskChange change = apply(task, look, kPollPolicy, 0);
        EXPECT_FALSE(change.task.attempt->last_step);
        EXPECT_TRUE(change.events.empty());
        look.lines = {R"({"step":1,"loss":2.5})", R"({"step":9007199254740992})", R"({"step":20,"loss":2.0})"};
        change = apply(change.task, look, kPollPolicy, 0);
        EXPECT_EQ(change.task.attempt->first_step, 1);
        EXPECT_EQ(change.task.attempt->last_step->step, 20);
        ASSERT_EQ(change.events.size(), 1U);
        EXPECT_EQ(change.events.front().data.at("points").at("step"), (Json{1, 20}));
    }
}

TEST(TaskMachineTest, ALineThatNoTrainerCanHaveWrittenFailsTheAttemptByItsNumber) {
    Json summary = kSummary;
    summary["resumable"] = 1;
    Observed before;
    before.lines = {"{\"step\":1,\"loss\":2.5}", "no JSON"};
    const Task running = apply(at_step(Step::kRunning), before, kPollPolicy, 0).task;
    ASSERT_EQ(running.attempt->step, Step::kRunning);
    const Task task = apply(running, ended(0, {{{"step", 2}, {"loss", 2.25}}, summary}), kPollPolicy, 0).task;
    EXPECT_EQ(task.attempt->step, Step::kFailed);
    EXPECT_EQ(task.state, TaskState::kPending) << "another attempt may say something else";
    for (const char* said : {"4", "stdout.jsonl", "resumable"})
        EXPECT_NE(task.attempt->error.find(said), std::string::npos) << task.attempt->error;
    EXPECT_EQ(task.attempt->last_step->step, 2) << "what came before it was taken";
    const Task evaluation =
        apply(evaluate_task(), ended(0, {{{"perplexity", true}, {"loss", 2.0}}}), kPollPolicy, 0).task;
    for (const char* said : {"1", "stdout.jsonl", "perplexity"})
        EXPECT_NE(evaluation.attempt->error.find(said), std::string::npos) << evaluation.attempt->error;
}

TEST(TaskMachineTest, AStepThatCannotBeDoneFailsItsAttemptAndThenItsTask) {
    const TaskChange first = fail_step(at_step(Step::kRunning), "it cannot be read", kPollPolicy);
    EXPECT_EQ(first.task.state, TaskState::kPending);
    EXPECT_EQ(first.task.attempt->step, Step::kFailed);
    EXPECT_EQ(first.events.at(0).type, "atoll.task.retrying.v1");
    EXPECT_EQ(fail_step(begin_attempt(first.task).task, "again", kPollPolicy).task.state, TaskState::kFailed);
    EXPECT_EQ(fail_step(first.task, "it cannot be begun", kPollPolicy).task.state, TaskState::kFailed)
        << "there is no attempt that could fail";
    Task cancelled = at_step(Step::kRunning);
    cancelled.cancel_requested = true;
    EXPECT_EQ(fail_step(cancelled, "it cannot be cancelled", kPollPolicy).task.state, TaskState::kFailed);
}

TEST(TaskMachineTest, ACancelledTaskEndsOnceNothingOfItLives) {
    Task task = at_step(Step::kRunning);
    task.cancel_requested = true;
    EXPECT_EQ(apply(task, Unreachable{"no route"}, kPollPolicy, 0).task.state, TaskState::kRunning);
    EXPECT_EQ(apply(task, Cancelled{}, kPollPolicy, 0).task.state, TaskState::kCancelled);
}

}  // namespace
}  // namespace atl::dispatch
