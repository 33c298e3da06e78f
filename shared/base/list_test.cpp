#include "shared/base/list.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

TEST(ListTest, PartsAreWhatStandsBetweenCommas) {
    using Parts = std::vector<std::string>;
    EXPECT_EQ(split_list("a,b c"), (Parts{"a", "b c"}));
    EXPECT_EQ(split_list(",a,,b,"), (Parts{"a", "b"}));
    EXPECT_EQ(split_list(""), Parts());
}

}  // namespace
}  // namespace atl
