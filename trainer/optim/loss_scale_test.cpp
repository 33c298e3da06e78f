#include "trainer/optim/loss_scale.h"

#include <gtest/gtest.h>

namespace atl::optim {
namespace {

// What torch.amp.GradScaler(init_scale=65536) has after the same steps.
TEST(LossScaleTest, DoublesAfterTwoThousandGoodSteps) {
    LossScale loss{.scale = 65536};
    for (int step = 1; step < 2000; ++step) loss.step_was_good();
    EXPECT_EQ(loss.scale, 65536);
    loss.step_was_good();
    EXPECT_EQ(loss.scale, 131072);
    for (int step = 1; step <= 2000; ++step) loss.step_was_good();
    EXPECT_EQ(loss.scale, 262144);
}

TEST(LossScaleTest, ASkippedStepHalvesItAndTheCountBeginsAnew) {
    LossScale loss{.scale = 65536};
    for (int step = 1; step < 2000; ++step) loss.step_was_good();
    loss.step_was_skipped();
    EXPECT_EQ(loss.scale, 32768);
    EXPECT_EQ(loss.skipped, 1);
    for (int step = 1; step < 2000; ++step) loss.step_was_good();
    EXPECT_EQ(loss.scale, 32768);
    loss.step_was_good();
    EXPECT_EQ(loss.scale, 65536);
}

}  // namespace
}  // namespace atl::optim
