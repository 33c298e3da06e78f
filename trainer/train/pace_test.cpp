#include "trainer/train/pace.h"

#include <gtest/gtest.h>

namespace atl::train {
namespace {

TEST(PaceTest, IsThatOfTheFirstStepUntilThereAreOthersWhichCountAlone) {
    Pace pace(100, 7);
    EXPECT_EQ(pace.step_s(110, 8), 10);
    EXPECT_EQ(pace.step_s(111, 8), 10) << "of the same step";
    EXPECT_EQ(pace.step_s(112, 9), 2);
    EXPECT_EQ(pace.step_s(118, 10), 4);
}

}  // namespace
}  // namespace atl::train
