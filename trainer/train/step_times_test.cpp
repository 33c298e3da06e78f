#include "trainer/train/step_times.h"

#include <gtest/gtest.h>

namespace atl::train {
namespace {

// A device is always one step ahead, until the last two are read together.
TEST(StepTimesTest, TheStepsThatAreReadTogetherTakeWhatTheyTook) {
    StepTimes times;
    times.begin({.at_s = 0});
    times.begin({.at_s = 1});
    EXPECT_EQ(times.read({.at_s = 10}).at_s, 10);
    times.begin({.at_s = 11});
    EXPECT_EQ(times.read({.at_s = 20}).at_s, 10);
    EXPECT_EQ(times.read({.at_s = 30}).at_s, 10) << "not half of what both took since the last began";
}

TEST(StepTimesTest, WhatLiesBetweenTwoStepsIsNeithers) {
    StepTimes times;
    times.begin({.at_s = 0, .waited_s = 2});
    const RunMoment first = times.read({.at_s = 4, .waited_s = 3});
    EXPECT_EQ(first.at_s, 4);
    EXPECT_EQ(first.waited_s, 1);
    times.begin({.at_s = 10, .waited_s = 7});  // after a validation
    const RunMoment second = times.read({.at_s = 15, .waited_s = 9});
    EXPECT_EQ(second.at_s, 5);
    EXPECT_EQ(second.waited_s, 2);
}

TEST(StepTimesTest, AllStepsOfARunThatNeverPausesAddUpToIt) {
    StepTimes times;
    const double began_s = 3;
    RunMoment sum, now{began_s, 1};
    times.begin(now);
    for (int step = 2; step <= 9; ++step) {
        now = {now.at_s + 0.25, now.waited_s + 0.125};
        times.begin(now);
        now = {now.at_s + step, now.waited_s + 0.5};
        const RunMoment took = times.read(now);
        sum = {sum.at_s + took.at_s, sum.waited_s + took.waited_s};
    }
    now.at_s += 1;
    const RunMoment last = times.read(now);
    EXPECT_EQ(sum.at_s + last.at_s, now.at_s - began_s);
    EXPECT_EQ(sum.waited_s + last.waited_s, now.waited_s - 1);
}

TEST(PaceTest, IsThatOfTheFirstStepUntilThereAreOthersWhichCountAlone) {
    Pace pace(100, 7);
    EXPECT_EQ(pace.step_s(110, 8), 10);
    EXPECT_EQ(pace.step_s(111, 8), 10) << "of the same step";
    EXPECT_EQ(pace.step_s(112, 9), 2);
    EXPECT_EQ(pace.step_s(118, 10), 4);
}

}  // namespace
}  // namespace atl::train
