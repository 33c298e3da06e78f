#include "trainer/tensor/targets.h"

#include <gtest/gtest.h>

#include <vector>

namespace atl::tensor {
namespace {

TEST(TargetsTest, ATokenCountsWhenItsLabelDoesAndItsDocumentHasBegunBeforeIt) {
    const std::vector<std::int32_t> labels = {5, 6, kIgnoredLabel, 7, 8, 9, kIgnoredLabel};
    const std::vector<std::int32_t> segments = {1, 1, 1, 2, 2, 3, 0};
    EXPECT_EQ(count_targets(labels, segments), 2);  // 6 and 8
    EXPECT_EQ(count_targets(labels, {}), 4);        // all but the first that counts
    EXPECT_TRUE(is_target(labels, segments, 1));
    EXPECT_FALSE(is_target(labels, segments, 3)) << "a document's first token";
    EXPECT_TRUE(is_target(labels, {}, 3));
    EXPECT_FALSE(is_target(labels, {}, 0)) << "the row's first token";
    EXPECT_FALSE(is_target(labels, {}, 2)) << "a label that does not count";
    EXPECT_EQ(count_targets({}, {}), 0);
}

}  // namespace
}  // namespace atl::tensor
