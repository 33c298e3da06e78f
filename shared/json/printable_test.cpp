#include "shared/json/printable.h"

#include <gtest/gtest.h>

namespace atl::json {
namespace {

TEST(PrintableTest, WhatTheDatabaseOrATerminalWouldNotTakeIsLeftOut) {
    EXPECT_EQ(printable(std::string("a\0b\x1b[31m\xff\n\tc\x7f", 13)), "ab[31m\xef\xbf\xbd\n\tc");
    EXPECT_EQ(printable("perché ✓"), "perché ✓");
    EXPECT_EQ(printable(""), "");
}

TEST(PrintableTest, WhatIsNotUtf8IsTold) {
    for (const char* text : {"", "a", "\xC4\x8D", "\xF0\x9F\x98\x80"}) EXPECT_TRUE(is_utf8(text)) << text;
    for (const char* text : {"\xFF", "\xC4", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80"})
        EXPECT_FALSE(is_utf8(text));
}

}  // namespace
}  // namespace atl::json
