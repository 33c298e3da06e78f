#include "trainer/tokenizer/utf8.h"

#include <gtest/gtest.h>

namespace atl::tokenizer {
namespace {

TEST(Utf8Test, OnlyWellFormedSequencesHaveALength) {
    EXPECT_EQ(utf8_length("a"), 1);
    EXPECT_EQ(utf8_length("è!"), 2);
    EXPECT_EQ(utf8_length("文"), 3);
    EXPECT_EQ(utf8_length("😀"), 4);
    EXPECT_EQ(utf8_length("\xf4\x8f\xbf\xbf"), 4) << "U+10FFFF";
    for (const char* bad : {"\x80", "\xc1\x81", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
                            "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf0\x9f\x98", "\xff"})
        EXPECT_EQ(utf8_length(bad), 0);
    EXPECT_EQ(utf8_length(""), 0);
    EXPECT_TRUE(is_utf8("ascii and more ascii, è, more"));
    EXPECT_FALSE(is_utf8("ascii and more ascii\xff, more"));
}

// The example of the Unicode Standard, table 3-8 and what follows it.
TEST(Utf8Test, EachMaximalIllFormedPartBecomesOneReplacement) {
    const std::string r = "\xef\xbf\xbd";
    EXPECT_EQ(with_utf8_replaced("a\xf1\x80\x80\xe1\x80\xc2"
                                 "b\x80"
                                 "c\x80\xbf"
                                 "d"),
              "a" + r + r + r + "b" + r + "c" + r + r + "d");
    EXPECT_EQ(with_utf8_replaced("\xed\xa0\x80"), r + r + r);
    EXPECT_EQ(with_utf8_replaced("\xf0\x9f\x98"), r);
    EXPECT_EQ(with_utf8_replaced("è😀"), "è😀");
}

}  // namespace
}  // namespace atl::tokenizer
