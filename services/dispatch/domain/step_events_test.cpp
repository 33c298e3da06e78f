#include "services/dispatch/domain/step_events.h"

#include <gtest/gtest.h>

#include <limits>

#include "services/dispatch/testing/task_steps.h"

namespace atl::dispatch {
namespace {

using json::Json;

std::vector<StepLine> steps_from(std::int64_t first, std::int64_t count) {
    std::vector<StepLine> steps;
    for (std::int64_t step = first; step < first + count; ++step) {
        StepLine line;
        line.step = step;
        line.loss = static_cast<double>(step % 7);
        line.time_unix_s = 1e9 + static_cast<double>(step) / 1000;
        steps.push_back(line);
    }
    return steps;
}

std::vector<std::int64_t> steps_of(const std::vector<Json>& events) {
    std::vector<std::int64_t> steps;
    for (const Json& event : events) {
        if (!event.contains("points")) steps.push_back(event.at("step"));
        for (const Json& step : event.contains("points") ? event.at("points").at("step") : Json::array())
            steps.push_back(step);
    }
    return steps;
}

// Steps of a millisecond, looked at every 30 seconds: what a look finds comes in parts, as a script prints no more.
TEST(StepEventsTest, EveryStepOfAFastTrainingIsToldThoughItIsLookedAtSeldom) {
    constexpr std::int64_t kSteps = 90'000;
    constexpr std::int64_t kPart = 1300;
    Task task = at_step(Step::kRunning);
    std::vector<Json> told;
    for (std::int64_t step = 1; step <= kSteps; step += kPart) {
        Observed part;
        part.started = true;
        std::vector<Json> lines;
        for (const StepLine& line : steps_from(step, std::min(kPart, kSteps + 1 - step)))
            lines.push_back(to_json(line));
        part.lines = printed(lines);
        part.log_is_drained = step % (23 * kPart) == 1;
        const TaskChange change = apply(task, part, kPollPolicy, step);
        for (const DomainEvent& event : change.events) {
            EXPECT_EQ(event.type, "atoll.task.progress.v1");
            EXPECT_LT(event.data.dump().size(), 200'000U);
            told.push_back(event.data);
        }
        task = change.task;
    }
    std::vector<std::int64_t> all;
    for (std::int64_t step = 1; step <= kSteps; ++step) all.push_back(step);
    EXPECT_EQ(steps_of(told), all);
    EXPECT_EQ(told.front().at("points").at("loss").at(1), 2);
    EXPECT_EQ(told.front().at("points").at("time_unix_s").at(0), 1e9 + 0.001);
}

TEST(StepEventsTest, ALonelyStepIsToldByItsValuesAlone) {
    std::int64_t told = 0;
    const auto events = progress_events(steps_from(7, 1), told);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0], (Json{{"step", 7}, {"loss", 0}, {"time_unix_s", 1e9 + 0.007}}));
    EXPECT_EQ(told, 1);
    EXPECT_TRUE(progress_events({}, told).empty());
}

TEST(StepEventsTest, AValidationBelongsToItsStep) {
    auto lines = steps_from(7, 2);
    StepLine validation;
    validation.step = 8;
    validation.val_loss = 3.5;
    lines.push_back(validation);
    std::int64_t told = 0;
    const auto events = progress_events(lines, told);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].at("loss"), 1);
    EXPECT_EQ(events[0].at("val_loss"), 3.5);
    EXPECT_EQ(events[0].at("points").at("val_loss"), (Json{nullptr, 3.5}));
    EXPECT_EQ(told, 2);
}

// It takes its time, so that a look often finds it alone.
TEST(StepEventsTest, AValidationTakesNothingFromTheNewestStepAndStaysUntilTheNext) {
    Task task = at_step(Step::kRunning);
    std::get<TrainParams>(task.params).training = {{"steps", 9}};
    const auto see = [&](const std::vector<Json>& lines) {
        Observed seen;
        seen.started = true;
        seen.lines = printed(lines);
        const TaskChange change = apply(task, seen, kPollPolicy, 0);
        task = change.task;
        return change.events.back().data;
    };
    see({{{"step", 8}, {"loss", 2.5}, {"step_s", 0.5}}});
    const Json told = see({{{"step", 8}, {"val_loss", 3.5}, {"val_perplexity", 33.1}, {"val_tokens", 640}}});
    EXPECT_EQ(told.at("step"), 8);
    EXPECT_EQ(told.at("val_loss"), 3.5);
    EXPECT_FALSE(told.contains("loss"));
    EXPECT_EQ(to_json(*task.attempt->last_step), (Json{{"step", 8},
                                                       {"loss", 2.5},
                                                       {"step_s", 0.5},
                                                       {"val_loss", 3.5},
                                                       {"val_perplexity", 33.1},
                                                       {"val_tokens", 640}}));
    see({{{"step", 9}, {"loss", 2.25}}});
    EXPECT_EQ(to_json(*task.attempt->last_step),
              (Json{{"step", 9}, {"loss", 2.25}, {"val_loss", 3.5}, {"val_perplexity", 33.1}, {"val_tokens", 640}}));
    see({{{"step", 9}, {"val_loss", 3.25}, {"val_perplexity", nullptr}, {"val_tokens", 640}}});
    EXPECT_EQ(task.attempt->last_step->val_loss, 3.25);
    EXPECT_FALSE(task.attempt->last_step->val_perplexity.has_value()) << "too large for a number";
}

TEST(StepEventsTest, TheNewestLossStaysWhereAStepTellsNone) {
    StepLine first;
    first.step = 7;
    first.loss = 2.5;
    first.loss_tokens = 64;
    first.lr = 0.1;
    StepLine second;
    second.step = 8;
    second.tokens_per_s = 3;
    const StepLine newest = newest_step(std::nullopt, {first, second});
    EXPECT_EQ(newest.step, 8);
    EXPECT_EQ(newest.loss, 2.5) << "a step of few tokens tells its loss with the next ones";
    EXPECT_EQ(newest.loss_tokens, 64);
    EXPECT_EQ(newest.lr, std::nullopt);
    second.step = 9;
    second.loss = 2.25;
    EXPECT_EQ(newest_step(newest, {second}).loss, 2.25);
}

TEST(StepEventsTest, BeyondThemAPointStandsForManyStepsWithTheirMeanAndRange) {
    std::int64_t told = kPointsMax - 1;
    const auto events = progress_events(steps_from(1, 301), told);
    EXPECT_EQ(steps_of(events), (std::vector<std::int64_t>{1, 101, 201, 301}));
    const Json& points = events.at(0).at("points");
    EXPECT_EQ(points.at("steps"), (Json{1, 100, 100, 100}));
    EXPECT_EQ(points.at("loss_min").at(1), 0);
    EXPECT_EQ(points.at("loss_max").at(1), 6);
    EXPECT_NEAR(points.at("loss").at(1), 3, 0.1);
    EXPECT_EQ(events.at(0).at("step"), 301);
}

TEST(StepEventsTest, WhateverASitePrintsComesToABoundedNumberOfPointsOfFiniteNumbers) {
    auto steps = steps_from(1, 100'000);
    for (std::size_t i = 0; i < steps.size(); ++i)
        steps[i].loss = std::numeric_limits<double>::max() * (i % 2 == 0 ? 1 : -1);
    // A look each at the beginning, and where a point begins to stand for a hundred and for ten thousand steps.
    for (const auto& [before, expected] :
         {std::pair(std::int64_t{0}, 100'000), {kPointsMax - 1000, 1000 + 990}, {2 * kPointsMax - 100, 100 + 9}}) {
        std::int64_t told = before;
        std::int64_t points = 0;
        for (const Json& event : progress_events(steps, told)) {
            points += event.contains("points") ? static_cast<std::int64_t>(event.at("points").at("step").size()) : 1;
            EXPECT_EQ(event.dump().find("null"), std::string::npos) << "a number that is not finite";
        }
        EXPECT_EQ(points, expected) << "after " << before << " points";
        EXPECT_EQ(told, before + points);
    }
}

TEST(StepEventsTest, TheNextAttemptGoesOnCounting) {
    Task task = at_step(Step::kRunning);
    task = apply(task, out_of_time(), kPollPolicy, 0).task;
    EXPECT_EQ(task.attempt->points_told, 1);
    task = begin_attempt(task).task;
    EXPECT_EQ(task.attempt->points_told, 1);
    Attempt kept;
    ASSERT_TRUE(read_progress(progress_json(*task.attempt), kept).ok());
    EXPECT_EQ(kept.points_told, 1);
}

}  // namespace
}  // namespace atl::dispatch
