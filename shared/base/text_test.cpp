#include "shared/base/text.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

TEST(TextTest, TrimTakesBlanksFromBothEndsAlone) {
    EXPECT_EQ(trim(" \ta b\r\n"), "a b");
    EXPECT_EQ(trim("a"), "a");
    EXPECT_EQ(trim(" \n"), "");
    EXPECT_EQ(trim(""), "");
}

TEST(TextTest, JoinPutsTheSeparatorBetween) {
    EXPECT_EQ(join({}), "");
    EXPECT_EQ(join({"a"}), "a");
    EXPECT_EQ(join({"a", "", "b"}), "a, , b");
    EXPECT_EQ(join({"a", "b"}, " "), "a b");
}

TEST(TextTest, PartsOfAListAreWhatStandsBetweenCommas) {
    using Parts = std::vector<std::string>;
    EXPECT_EQ(split_list("a,b c"), (Parts{"a", "b c"}));
    EXPECT_EQ(split_list(",a,,b,"), (Parts{"a", "b"}));
    EXPECT_EQ(split_list(""), Parts());
}

}  // namespace
}  // namespace atl
