#include "shared/run_settings/schedule.h"

#include <gtest/gtest.h>

namespace atl::run_settings {
namespace {

TEST(ScheduleTest, WarmsUpFromZeroThenStaysConstant) {
    const Schedule schedule{LrSchedule::kConstant, 0.4, 4, 100};
    EXPECT_DOUBLE_EQ(schedule.rate(1), 0);
    EXPECT_DOUBLE_EQ(schedule.rate(2), 0.1);
    EXPECT_DOUBLE_EQ(schedule.rate(5), 0.4);
    EXPECT_DOUBLE_EQ(schedule.rate(100), 0.4);
}

TEST(ScheduleTest, AWarmUpThatDoesNotBeginAtZeroHasItsPeakAtItsLastStep) {
    const Schedule schedule{LrSchedule::kLinear, 0.4, 4, 12, /*warms_up_from_zero=*/false};
    for (const auto& [step, rate] : {std::pair{1, 0.1}, {2, 0.2}, {4, 0.4}, {5, 0.4}, {9, 0.2}})
        EXPECT_DOUBLE_EQ(schedule.rate(step), rate) << step;
}

TEST(ScheduleTest, LinearFallsToZeroAfterTheLastStep) {
    const Schedule schedule{LrSchedule::kLinear, 1, 2, 12};
    EXPECT_DOUBLE_EQ(schedule.rate(2), 0.5);
    EXPECT_DOUBLE_EQ(schedule.rate(3), 1);
    EXPECT_DOUBLE_EQ(schedule.rate(8), 0.5);
    EXPECT_NEAR(schedule.rate(12), 0.1, 1e-15);
    EXPECT_DOUBLE_EQ(schedule.rate(13), 0);
}

TEST(ScheduleTest, CosineIsHalfwayInTheMiddle) {
    const Schedule schedule{LrSchedule::kCosine, 1, 0, 10};
    EXPECT_DOUBLE_EQ(schedule.rate(1), 1);
    EXPECT_NEAR(schedule.rate(6), 0.5, 1e-15);
    // transformers 5: get_cosine_schedule_with_warmup(…, 0, 10) after 9 steps.
    EXPECT_NEAR(schedule.rate(10), 0.024471741852423234, 1e-15);
}

TEST(ScheduleTest, RunsOfOneScheduleGoOnWhereTheOneBeforeEnded) {
    for (const LrSchedule kind : {LrSchedule::kConstant, LrSchedule::kLinear, LrSchedule::kCosine}) {
        for (const bool from_zero : {true, false}) {
            const Schedule whole{kind, 0.4, 5, 12, from_zero};
            for (std::int64_t run = 0; run < 4; ++run) {
                const Schedule part{kind, 0.4, 5, 12, from_zero, 3 * run};
                for (std::int64_t step = 1; step <= 3; ++step) EXPECT_EQ(part.rate(step), whole.rate(3 * run + step));
            }
        }
    }
    RunConfig config;
    config.lr = 0.5;
    config.schedule = LrSchedule::kLinear;
    config.schedule_runs = 4;
    config.schedule_run = 3;
    EXPECT_DOUBLE_EQ(schedule_of(config, 10).rate(1), 0.25);
}

TEST(ScheduleTest, TheSumOfTheRatesIsThatOfEachStep) {
    for (const std::int64_t count : {0, 1, 7, 4096, 5000, 100'003}) {
        const Schedule schedule{LrSchedule::kCosine, 0.4, 50, 150'000, false, 300};
        double sum = 0;
        for (std::int64_t step = 1; step <= count; ++step) sum += schedule.rate(step);
        EXPECT_NEAR(schedule.sum(count), sum, 1e-6 * sum) << count;
    }
}

}  // namespace
}  // namespace atl::run_settings
