#include "trainer/train/prepare.h"

#include <gtest/gtest.h>

namespace atl::train {
namespace {

TEST(PrepareTest, TheTokensOfAMicroStepHaveALimit) {
    EXPECT_TRUE(check_micro_step(1'000'000, 2048).ok());
    EXPECT_EQ(check_micro_step(1'000'000, 4096).error().field, "--batch-size");
}

}  // namespace
}  // namespace atl::train
