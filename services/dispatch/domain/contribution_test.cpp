#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "services/dispatch/domain/round_machine.h"
#include "services/dispatch/testing/job_rounds.h"

// What the aggregation says of each update in a round's model, and what the job makes of it.
namespace atl::dispatch {
namespace {

using json::Json;

TEST(ContributionTest, WhatTheAggregationMeasuredIsKeptWithTheRoundAndTold) {
    JobView job = new_job();
    take(job, submit_job(job, 0));
    train_both(job);
    AggregationResult answer{1, "g1", "", {}};
    answer.contributions = Json::parse(R"([
        {"facility": "b", "version": "b1", "weight": 0.25, "norm": 7.5, "cosine": -0.5, "counted": 0.5, "samples": 10,
         "control_variate_norm": 2.5, "control_variate_counted": 0.25},
        {"facility": "a", "version": "a1", "weight": 0.75}])");
    const JobDecision decision = apply_aggregation(job, answer, 0);
    const Json kept = {{{"task", task_of(job, TaskKind::kTrain, 1, "a").id}, {"facility", "a"}, {"share", 0.75}},
                       {{"task", task_of(job, TaskKind::kTrain, 1, "b").id},
                        {"facility", "b"},
                        {"share", 0.25},
                        {"norm", 7.5},
                        {"cosine", -0.5},
                        {"counted", 0.5},
                        {"control_variate_norm", 2.5},
                        {"control_variate_counted", 0.25}}};
    EXPECT_EQ(decision.events.at(0).data.at("updates"), kept);
    const auto closed = std::find_if(decision.rounds.begin(), decision.rounds.end(),
                                     [](const Round& round) { return round.number == 1; });
    ASSERT_NE(closed, decision.rounds.end());
    EXPECT_EQ(closed->contributions, kept);
}

// The current round of a job of a and b is trained, and its aggregation says this of b's update; what the round keeps.
Json keep_contribution(JobView& job, double cosine, double counted = 1, std::optional<double> others = 0.1) {
    const std::int64_t number = job.round.number;
    train_both(job);
    AggregationResult answer{number, "g" + std::to_string(number), "", {}};
    for (const Task* task : accepted_updates(job)) {
        const bool is_b = task->facility == "b";
        answer.contributions.push_back(
            {{"facility", task->facility}, {"version", task->result.at("version")}, {"counted", is_b ? counted : 1}});
        if (is_b || others) answer.contributions.back()["cosine"] = is_b ? cosine : *others;
    }
    const JobDecision decision = apply_aggregation(job, answer, 0);
    take(job, decision);
    for (const Round& round : decision.rounds)
        if (round.number == number) return round.contributions;
    return {};
}

TEST(ContributionTest, AnUpdateThatHasPointedAwayFromTheOthersForRoundsIsPointedOut) {
    JobView job = new_job();
    job.spec.rounds = 20;
    take(job, submit_job(job, 0));
    const auto opposed = [&](double cosine, double counted = 1) {
        const Json kept = keep_contribution(job, cosine, counted);
        EXPECT_FALSE(kept.at(0).contains("opposed_rounds")) << "a is honest: " << kept;
        return kept.at(1).value("opposed_rounds", 0);
    };
    EXPECT_EQ(opposed(-0.9), 0);
    EXPECT_EQ(opposed(-0.5), 0);
    EXPECT_EQ(opposed(-0.9), 3);
    EXPECT_EQ(opposed(-0.9, 0.5), 4);
    EXPECT_EQ(opposed(-1, 0), 5) << "also where nothing of it counts";
    EXPECT_EQ(opposed(-0.9), 6);
    EXPECT_EQ(opposed(-0.4), 0);
    EXPECT_EQ(opposed(-0.9), 0) << "counted from its beginning";
}

TEST(ContributionTest, WhoPointsAwayFromALiarIsNotPointedOut) {
    JobView job = new_job();
    job.spec.rounds = 20;
    take(job, submit_job(job, 0));
    for (int round = 1; round <= 4; ++round)
        for (const Json& one : keep_contribution(job, -0.9, 1, -0.9))
            EXPECT_FALSE(one.contains("opposed_rounds")) << "which of both it is, nothing tells";
    Json kept;
    for (int round = 1; round <= 3; ++round) kept = keep_contribution(job, -0.9, 0, std::nullopt);
    EXPECT_FALSE(kept.at(0).contains("opposed_rounds")) << "what it was compared with did not count";
    EXPECT_EQ(kept.at(1).value("opposed_rounds", 0), 3);
}

}  // namespace
}  // namespace atl::dispatch
