#include "trainer/optim/schedule.h"

#include <gtest/gtest.h>

#include "trainer/optim/optimizer.h"

namespace atl::optim {
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

}  // namespace
}  // namespace atl::optim
