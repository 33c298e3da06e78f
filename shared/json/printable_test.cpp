#include "shared/json/printable.h"

#include <gtest/gtest.h>

namespace atl::json {
namespace {

TEST(PrintableTest, WhatTheDatabaseOrATerminalWouldNotTakeIsLeftOut) {
    EXPECT_EQ(printable(std::string("a\0b\x1b[31m\xff\n\tc\x7f", 13)), "ab[31m\xef\xbf\xbd\n\tc");
    EXPECT_EQ(printable("perché ✓"), "perché ✓");
    EXPECT_EQ(printable(""), "");
}

}  // namespace
}  // namespace atl::json
