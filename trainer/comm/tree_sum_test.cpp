#include "trainer/comm/tree_sum.h"

#include <gtest/gtest.h>

#include <vector>

namespace atl::comm {
namespace {

TEST(TreeSumTest, AddsInPairsThenPairsOfPairs) {
    std::vector<double> values{1e30, -1e30, 1, 2, 4};
    EXPECT_EQ(tree_sum(values), 7);
}

}  // namespace
}  // namespace atl::comm
