#include "trainer/kernels/step_scalars.h"

#include <gtest/gtest.h>

#include <limits>

namespace atl::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ClipTest, NormsAboveTheLimitAreScaledDownToIt) {
    EXPECT_EQ(clip_factor(0.5, 1), 1);
    EXPECT_NEAR(clip_factor(4, 1), 0.25, 1e-6);
    EXPECT_EQ(clip_factor(4, 0), 1);
    EXPECT_EQ(clip_factor(kInfinity, 0), 1);
}

class FinishStepTest : public testing::Test {
  protected:
    void step(double gradient_squares = 4, double loss = 1) {
        scalars_.gradient_squares = gradient_squares;
        scalars_.loss = loss;
        finish_step(rules_, scalars_);
    }
    void steps(int count) {
        for (int i = 0; i < count; ++i) step();
    }

    StepRules rules_{.nominal_targets = 8, .targets = 4, .norm_max = 0, .scales_loss = true};
    StepScalars scalars_{.loss_scale = 65536};
};

TEST_F(FinishStepTest, TheFactorMakesTheGradientThatOfTheMeanLossAndClipsIt) {
    scalars_.loss_scale = 16;
    step();
    EXPECT_EQ(scalars_.norm, 2 * 8 / (4 * 16.0));
    EXPECT_EQ(scalars_.factor, 8 / (4 * 16.0));
    rules_.norm_max = 0.125;
    step();
    EXPECT_NEAR(scalars_.factor, 0.125 * 0.125 / 0.25, 1e-6);
    EXPECT_EQ(scalars_.updates, 2);
}

// What torch.amp.GradScaler(init_scale=65536) has after the same steps.
TEST_F(FinishStepTest, TheLossScaleDoublesAfterTwoThousandGoodSteps) {
    steps(1999);
    EXPECT_EQ(scalars_.loss_scale, 65536);
    step();
    EXPECT_EQ(scalars_.loss_scale, 131072);
    steps(2000);
    EXPECT_EQ(scalars_.loss_scale, 262144);
    EXPECT_EQ(scalars_.updates, 4000);
}

TEST_F(FinishStepTest, AStepWhoseGradientOverflowsHalvesItAndTheCountBeginsAnew) {
    steps(1999);
    step(kInfinity);
    EXPECT_EQ(scalars_.is_update, 0);
    EXPECT_EQ(scalars_.loss_scale, 32768);
    EXPECT_EQ(scalars_.skipped, 1);
    EXPECT_EQ(scalars_.updates, 1999);
    steps(1999);
    EXPECT_EQ(scalars_.loss_scale, 32768);
    step();
    EXPECT_EQ(scalars_.loss_scale, 65536);
    EXPECT_EQ(scalars_.has_failed, 0);
}

TEST_F(FinishStepTest, WithoutATargetNothingIsUpdated) {
    rules_.targets = 0;
    step(0, 0);
    EXPECT_EQ(scalars_.is_update, 0);
    EXPECT_EQ(scalars_.skipped, 1);
    EXPECT_EQ(scalars_.loss_scale, 65536);
    EXPECT_EQ(scalars_.good_steps, 0);
    EXPECT_EQ(scalars_.has_failed, 0);
}

// The steps that the device was asked for before the host knew.
TEST_F(FinishStepTest, AfterAStepThatFailedNothingIsUpdatedAnyMore) {
    rules_.scales_loss = false;
    scalars_.loss_scale = 1;
    step();
    step(std::nan(""));
    EXPECT_EQ(scalars_.has_failed, 1);
    step();
    EXPECT_EQ(scalars_.is_update, 0);
    EXPECT_EQ(scalars_.updates, 1);
}

TEST_F(FinishStepTest, ALossThatIsNotFiniteOrAScaleThatIsTooSmallFails) {
    step(4, kInfinity);
    EXPECT_EQ(scalars_.has_failed, 1);
    scalars_ = {.loss_scale = kLossScaleSmallest};
    step(kInfinity);
    EXPECT_EQ(scalars_.has_failed, 1);
}

}  // namespace
}  // namespace atl::kernels
