#include "services/dispatch/work/federation_metrics.h"

#include <gtest/gtest.h>

#include "services/dispatch/metrics.h"

namespace atl::dispatch {
namespace {

class FederationMetricsTest : public testing::Test {
  protected:
    static Task task_in(Step step, std::int64_t since_ms = 0) {
        Task task;
        task.facility = "alpha";
        TrainParams params;
        params.resources.nodes = 3;
        task.params = params;
        task.state = TaskState::kRunning;
        task.attempt.emplace();
        task.attempt->step = step;
        task.attempt->since_ms = since_ms;
        return task;
    }
    double phase(const char* name) {
        return metrics_.counter(kMetrics["atoll_phase_seconds_total"], {{"facility", "alpha"}, {"phase", name}})
            .Value();
    }
    double nodes(const char* outcome) {
        return metrics_.counter(kMetrics["atoll_node_seconds_total"], {{"facility", "alpha"}, {"outcome", outcome}})
            .Value();
    }
    double bytes(const char* direction) {
        return metrics_
            .counter(kMetrics["atoll_transfer_bytes_total"], {{"facility", "alpha"}, {"direction", direction}})
            .Value();
    }

    double transfer_s(const char* direction) {
        return metrics_
            .counter(kMetrics["atoll_transfer_seconds_total"], {{"facility", "alpha"}, {"direction", direction}})
            .Value();
    }

    metrics::Registry metrics_;
};

TEST_F(FederationMetricsTest, TheTimeOfAPhaseCountsWhenTheAttemptLeavesIt) {
    count_step(task_in(Step::kQueued, 1000), task_in(Step::kQueued, 1000), 3000, metrics_);
    EXPECT_EQ(phase("queued"), 0);
    count_step(task_in(Step::kQueued, 1000), task_in(Step::kRunning, 5000), 5000, metrics_);
    EXPECT_EQ(phase("queued"), 4);
    EXPECT_NE(metrics_.expose().find("atoll_queue_wait_seconds_sum{facility=\"alpha\"} 4"), std::string::npos);
    count_step(task_in(Step::kRunning, 5000), task_in(Step::kCollecting, 15'000), 15'000, metrics_);
    EXPECT_EQ(phase("running"), 10);
    EXPECT_EQ(nodes("used"), 30) << "three nodes";
    count_step(task_in(Step::kRunning, 5000), task_in(Step::kFailed), 7000, metrics_);
    EXPECT_EQ(nodes("lost"), 6);
    EXPECT_EQ(metrics_.counter(kMetrics["atoll_attempts_failed_total"], {{"facility", "alpha"}}).Value(), 1);
    count_step(task_in(Step::kQueued, 9000), task_in(Step::kRunning, 5000), 5000, metrics_);
    EXPECT_EQ(phase("queued"), 4) << "a clock that was set back";
}

TEST_F(FederationMetricsTest, BytesCountAsTheyMoveAndAtTheEndOfATransfer) {
    Task before = task_in(Step::kStaging, 1000), after = before;
    before.attempt->bytes_total = after.attempt->bytes_total = 100;
    before.attempt->bytes_done = 20;
    after.attempt->bytes_done = 50;
    count_step(before, after, 2000, metrics_);
    EXPECT_EQ(bytes("in"), 30);
    Task next = task_in(Step::kSubmitting);
    count_step(after, next, 3000, metrics_);
    EXPECT_EQ(bytes("in"), 80);
    after.attempt->step = Step::kCollecting;
    next.attempt->step = Step::kFailed;
    count_step(after, next, 3000, metrics_);
    EXPECT_EQ(bytes("out"), 0) << "it did not come to its end";
    before = task_in(Step::kCollecting), next = task_in(Step::kDone);
    next.attempt->phases.push_back({Step::kCollecting, 1000, 2000, 64});
    count_step(before, next, 2000, metrics_);
    EXPECT_EQ(bytes("out"), 64) << "it was over before it was seen under way";
}

TEST_F(FederationMetricsTest, TheTimeOfATransferCountsBesideItsBytes) {
    count_step(task_in(Step::kStaging, 1000), task_in(Step::kSubmitting, 0), 4000, metrics_);
    count_step(task_in(Step::kCollecting, 5000), task_in(Step::kDone), 7000, metrics_);
    count_step(task_in(Step::kRunning, 5000), task_in(Step::kCollecting, 9000), 9000, metrics_);
    EXPECT_EQ(transfer_s("in"), 3);
    EXPECT_EQ(transfer_s("out"), 2);
}

TEST_F(FederationMetricsTest, TokensCountWhenATrainingIsDone) {
    const auto tokens = [&] {
        return metrics_.counter(kMetrics["atoll_training_tokens_total"], {{"facility", "alpha"}}).Value();
    };
    Task running = task_in(Step::kCollecting), ended = task_in(Step::kFailed);
    ended.result = {{"version", "v"}, {"samples", 10}, {"tokens", 4096}};
    ended.state = TaskState::kFailed;
    count_step(running, ended, 0, metrics_);
    EXPECT_EQ(tokens(), 0) << "it brought no update";
    ended.state = TaskState::kDone;
    count_step(running, ended, 0, metrics_);
    count_step(ended, ended, 0, metrics_);
    EXPECT_EQ(tokens(), 4096);
}

TEST_F(FederationMetricsTest, EachEndOfATaskCountsOnce) {
    Task running = task_in(Step::kCollecting), done = task_in(Step::kDone);
    done.state = TaskState::kDone;
    count_step(running, done, 0, metrics_);
    count_step(done, done, 0, metrics_);
    const auto& ended = metrics_.counter(kMetrics["atoll_tasks_ended_total"],
                                         {{"facility", "alpha"}, {"kind", "train"}, {"outcome", "done"}});
    EXPECT_EQ(ended.Value(), 1);
}

TEST_F(FederationMetricsTest, ATrainingThatEndedIsServedNoLonger) {
    FederationState state;
    StepLine line;
    line.step = 7;
    line.loss = 2.5;
    line.exposed_comm_s = 0.5;
    line.step_s = 2;
    line.eta_s = 60;
    state.trainings.push_back({"alpha", "demo", line});
    show(state, metrics_);
    std::string text = metrics_.expose();
    EXPECT_NE(text.find("atoll_training_loss{atoll_job=\"demo\",facility=\"alpha\"} 2.5"), std::string::npos) << text;
    EXPECT_NE(text.find("atoll_training_step{atoll_job=\"demo\",facility=\"alpha\"} 7"), std::string::npos) << text;
    EXPECT_NE(text.find("atoll_training_exposed_communication_ratio{atoll_job=\"demo\",facility=\"alpha\"} 0.25"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("atoll_training_eta_seconds{atoll_job=\"demo\",facility=\"alpha\"} 60"), std::string::npos);
    EXPECT_EQ(text.find("atoll_training_mfu_ratio{"), std::string::npos) << "the line does not say";
    show(FederationState{}, metrics_);
    text = metrics_.expose();
    EXPECT_EQ(text.find("atoll_job=\"demo\""), std::string::npos) << text;
}

}  // namespace
}  // namespace atl::dispatch
