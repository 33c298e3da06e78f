#include <gtest/gtest.h>

#include "services/dispatch/domain/task_machine.h"
#include "services/dispatch/testing/task_steps.h"

namespace atl::dispatch {
namespace {

TEST(PollPolicyTest, LooksGetRarerTheLongerAnAttemptTakesAndOftenAgainWhenItRuns) {
    PollPolicy policy;
    policy.poll_ms = 2000;
    policy.poll_ms_max = 60'000;
    policy.batch_poll_ms = 5000;
    Task task = begin_attempt(train_task()).task;
    task = apply(task, Staged{}, policy, 0).task;
    task = apply(task, Submitted{"1"}, policy, 1000).task;
    const auto wait = [&](std::int64_t now_ms) { return apply(task, Observed{}, policy, now_ms).next_in_ms; };
    EXPECT_EQ(wait(2000), 2000);
    EXPECT_EQ(wait(31'000), 10'000);
    EXPECT_EQ(wait(3'600'000), 60'000);
    EXPECT_EQ(batch_interval_ms(*task.attempt, policy, 2000), 5000);
    EXPECT_EQ(batch_interval_ms(*task.attempt, policy, 3'600'000), 120'000);
    Observed started;
    started.started = true;
    EXPECT_EQ(apply(task, started, policy, 3'600'000).next_in_ms, 2000);
    EXPECT_EQ(wait(0), 2000) << "the clock was set back";
    task.attempt->queue_misses = 1;
    EXPECT_EQ(wait(3'600'000), 5000) << "one that the queue does not know is looked at soon";
    EXPECT_EQ(batch_interval_ms(*task.attempt, policy, 3'600'000), 5000);
}

}  // namespace
}  // namespace atl::dispatch
