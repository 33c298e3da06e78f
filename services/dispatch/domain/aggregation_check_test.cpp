#include "services/dispatch/domain/aggregation_check.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using json::Json;

// A job of three facilities in round 2 of 3, which has two updates and waits for its aggregation.
class AggregationCheckTest : public testing::Test {
  protected:
    AggregationCheckTest() {
        job_.id = "j";
        job_.round.number = 2;
        job_.round.base = "base";
        job_.round.state = RoundState::kAggregating;
        for (const std::string facility : {"a", "b", "late"}) {
            Task task;
            task.id = "task-" + facility;
            task.round = 2;
            task.facility = facility;
            task.params = TrainParams{};
            task.state = TaskState::kDone;
            task.result = {{"version", "update-" + facility}, {"samples", 1}, {"tokens", 1}};
            job_.tasks.push_back(task);
        }
        job_.round.accepted = {"task-a", "task-b"};
    }
    static Json contribution(const std::string& facility, const std::string& version) {
        return {{"facility", facility}, {"version", version}, {"weight", 0.5}};
    }
    Result<bool> check(const AggregationResult& result) const { return check_aggregation(job_, result, global_); }
    std::string fault(const AggregationResult& result) const {
        const auto checked = check(result);
        return checked.ok() ? "none" : checked.error().field;
    }

    JobView job_;
    Json global_ = {{"parents", {"base", "update-a", "update-b"}},
                    {"contributions", {contribution("a", "update-a"), contribution("b", "update-b")}}};
    const AggregationResult completed_{2, "global", ""};
    const AggregationResult failed_{2, "", "a fault"};
};

TEST_F(AggregationCheckTest, AnAnswerThatFitsTheRoundAndTheStoreCounts) {
    EXPECT_TRUE(check(completed_).value());
    EXPECT_TRUE(check(failed_).value());
    global_["contributions"].erase(1);
    EXPECT_TRUE(check({2, "global", "", {{"task-b", "NaN"}}}).value());
    EXPECT_TRUE(check({2, "", "a fault", {{"task-a", "NaN"}, {"task-b", "NaN"}}}).value());
}

TEST_F(AggregationCheckTest, WhatComesAgainOrAfterTheJobsEndChangesNothing) {
    EXPECT_FALSE(check({1, "earlier", ""}).value());
    job_.round.state = RoundState::kClosed;
    EXPECT_FALSE(check(completed_).value());
    job_.state = JobState::kCancelled;
    for (const auto& result : {completed_, failed_, AggregationResult{7, "global", ""}})
        EXPECT_FALSE(check(result).value());
}

TEST_F(AggregationCheckTest, ARoundThatDoesNotWaitIsNamed) {
    EXPECT_EQ(fault({3, "global", ""}), "data.round");
    EXPECT_EQ(fault({1, "", "a fault"}), "data.round");
    EXPECT_EQ(fault({-1, "", "a fault"}), "data.round");
    job_.round.state = RoundState::kTraining;
    EXPECT_EQ(fault(completed_), "data.round");
    EXPECT_EQ(fault(failed_), "data.round");
    job_.round.state = RoundState::kClosed;
    EXPECT_EQ(fault(failed_), "data.round");
}

TEST_F(AggregationCheckTest, AVersionOfAnotherBaseOrOfOtherUpdatesIsNoAnswer) {
    const Json good = global_;
    global_["parents"] = {"other"};
    EXPECT_EQ(fault(completed_), "data.version");
    for (const Json& contributions : std::vector<Json>{
             {contribution("a", "update-a"), contribution("b", "update-b"), contribution("late", "update-late")},
             {contribution("a", "update-a"), contribution("b", "update-a")},
             {contribution("a", "update-a")},
             Json::array(),
             {contribution("a", "update-a"), {{"facility", "b"}}},
             {contribution("a", "update-a"), 7}}) {
        global_ = good;
        global_["contributions"] = contributions;
        EXPECT_NE(fault(completed_), "none") << contributions;
    }
}

TEST_F(AggregationCheckTest, OnlyUpdatesThatCountCanHaveBeenRefused) {
    EXPECT_EQ(fault({2, "global", "", {{"task-b", "NaN"}}}), "data.version") << "it is in the version";
    for (const char* task : {"task-late", "task-of-nobody"}) {
        EXPECT_EQ(fault({2, "global", "", {{task, "NaN"}}}), "data.updates_refused") << task;
        EXPECT_EQ(fault({2, "", "a fault", {{task, "NaN"}}}), "data.updates_refused") << task;
    }
}

}  // namespace
}  // namespace atl::dispatch
