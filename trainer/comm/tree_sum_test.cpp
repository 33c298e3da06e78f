#include "trainer/comm/tree_sum.h"

#include <gtest/gtest.h>

#include <vector>

namespace atl::comm {
namespace {

TEST(TreeSumTest, AddsInPairsThenPairsOfPairs) {
    // In fp32 1e8 + 1 is 1e8, so only ((1e8 + -1e8) + (1 + 1)) keeps the small numbers.
    std::vector<float> pieces{1e8F, -1e8F, 1, 1};
    float sum = 0;
    tree_sum(pieces, std::span(&sum, 1));
    EXPECT_EQ(sum, 2.0F);
    pieces = {1e8F, 1, -1e8F, 1};
    tree_sum(pieces, std::span(&sum, 1));
    EXPECT_EQ(sum, 0.0F);
}

TEST(TreeSumTest, AddsEveryElementOfLongPieces) {
    const std::size_t count = 10001;
    for (const std::size_t piece_count : {1U, 2U, 3U, 5U, 8U}) {
        std::vector<float> pieces;
        for (std::size_t i = 0; i < piece_count * count; ++i) pieces.push_back(static_cast<float>(i % count));
        std::vector<float> sum(count);
        tree_sum(pieces, sum);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], static_cast<float>(i * piece_count)) << i;
    }
}

TEST(TreeSumTest, AddsDoublesByTheSameTree) {
    std::vector<double> values{1e30, -1e30, 1, 2, 4};
    EXPECT_EQ(tree_sum(values), 7);
}

}  // namespace
}  // namespace atl::comm
