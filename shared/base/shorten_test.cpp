#include "shared/base/shorten.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

TEST(ShortenTest, OnlyWhatIsTooLongIsCutAndEndsWithItsMark) {
    EXPECT_EQ(shorten("", 5), "");
    EXPECT_EQ(shorten("exact", 5), "exact");
    EXPECT_EQ(shorten("longer", 5), "lo…");
    EXPECT_EQ(shorten("longer", 3), "…");
}

TEST(ShortenTest, ALetterStaysWholeOrGoes) {
    EXPECT_EQ(shorten("žžž", 5), "ž…");
    EXPECT_EQ(shorten("aŽžž", 5), "a…");
}

}  // namespace
}  // namespace atl
