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

TEST(TextTest, OnlyWhatIsTooLongIsCutAndEndsWithItsMark) {
    EXPECT_EQ(shorten("", 5), "");
    EXPECT_EQ(shorten("exact", 5), "exact");
    EXPECT_EQ(shorten("longer", 5), "lo…");
    EXPECT_EQ(shorten("longer", 3), "…");
}

TEST(TextTest, ALetterStaysWholeOrGoes) {
    EXPECT_EQ(shorten("žžž", 5), "ž…");
    EXPECT_EQ(shorten("aŽžž", 5), "a…");
}

TEST(TextTest, ANumberIsAsShortAsItCanBeSaid) {
    EXPECT_EQ(number_text(16), "16");
    EXPECT_EQ(number_text(0.1), "0.1");
    EXPECT_EQ(number_text(1234567), "1234567");
    EXPECT_EQ(number_text(1e-6), "1e-06");
}

TEST(TextTest, InQuotesNothingEndsThemOrMovesTheCursor) {
    EXPECT_EQ(in_quotes("a b"), "\"a b\"");
    EXPECT_EQ(in_quotes("\"\\\x1b"), R"("\"\\\x1b")");
    EXPECT_EQ(in_quotes(std::string_view("\0", 1)), R"("\x00")");
    EXPECT_EQ(in_quotes("ž"), R"("\xc5\xbe")");
    EXPECT_EQ(in_quotes(std::string(120, 'a')), "\"" + std::string(120, 'a') + "\"");
    EXPECT_EQ(in_quotes(std::string(121, 'a')), "\"" + std::string(120, 'a') + "…\"");
}

TEST(TextTest, EachPlaceIsReplacedOnce) {
    EXPECT_EQ(replace_all("srun -n {n} --of {n}", "{n}", "12"), "srun -n 12 --of 12");
    EXPECT_EQ(replace_all("aa", "a", "aa"), "aaaa");
    EXPECT_EQ(replace_all("none", "{n}", "12"), "none");
}

TEST(TextTest, SizesAndTimesKeepAHandfulOfDigits) {
    EXPECT_EQ(human_bytes(1023), "1023 B");
    EXPECT_EQ(human_bytes(8U << 20), "8.0 MiB");
    EXPECT_EQ(human_bytes(1'500'000'000), "1.4 GiB");
    EXPECT_EQ(human_seconds(0.42), "0.4 s");
    EXPECT_EQ(human_seconds(185), "3 m 05 s");
    EXPECT_EQ(human_seconds(7800), "2 h 10 m");
}

}  // namespace
}  // namespace atl
