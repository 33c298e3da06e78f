#include "shared/json/printable.h"

#include <gtest/gtest.h>

#include "shared/json/json.h"
#include "shared/json/printable_line.h"

namespace atl::json {
namespace {

// What a terminal obeys: CSI as one character, right-to-left override, an isolate, a line separator, marks. What nobody
// sees: a soft hyphen, zero width spaces and joiners, a byte order mark, a tag, a variation selector.
constexpr const char* kSteering[] = {"\x1b",
                                     "\r",
                                     "\b",
                                     "\x7f",
                                     "\xC2\x80",
                                     "\xC2\x9B",
                                     "\xC2\x9F",
                                     "\xD8\x9C",
                                     "\xE2\x80\x8E",
                                     "\xE2\x80\x8F",
                                     "\xE2\x80\xA8",
                                     "\xE2\x80\xAE",
                                     "\xE2\x81\xA6",
                                     "\xE2\x81\xA9",
                                     "\xC2\xAD",
                                     "\xE2\x80\x8B",
                                     "\xE2\x80\x8C",
                                     "\xE2\x80\x8D",
                                     "\xE2\x81\xA0",
                                     "\xE2\x81\xA4",
                                     "\xEF\xBB\xBF",
                                     "\xE1\xA0\x8E",
                                     "\xF3\xA0\x80\x81",
                                     "\xF3\xA0\x81\xBF",
                                     "\xF3\xA0\x84\x80"};

TEST(PrintableTest, WhatTheDatabaseOrATerminalWouldNotTakeIsLeftOut) {
    EXPECT_EQ(printable(std::string("a\0b\x1b[31m\xff\n\tc\x7f", 13)), "ab[31m\xef\xbf\xbd\n\tc");
    EXPECT_EQ(printable("perché ✓"), "perché ✓");
    EXPECT_EQ(printable(""), "");
    for (const char* one : kSteering) EXPECT_EQ(printable(std::string("a") + one + "b"), "ab") << printable_json(one);
}

TEST(PrintableTest, LettersOfAllScriptsStay) {
    for (const char* text : {"čeština", "עברית", "العربية", "日本語", "\xC2\xA0", "\xE2\x80\xB0", "😀", "𝐀"})
        EXPECT_EQ(printable(text), text);
}

TEST(PrintableTest, BytesThatAreNoUtf8AreReplaced) {
    for (const char* text : {"\xFF", "\x80", "\xC4", "\xE2\x80"})
        EXPECT_EQ(printable(text).find(text), std::string::npos);
    EXPECT_EQ(printable("a\xC4z"), "a\xef\xbf\xbdz") << "the character after the broken one stays";
}

TEST(PrintableTest, ANameIsOneLineThatSteersNothing) {
    EXPECT_TRUE(is_printable_line("model-00001-of-00002.safetensors"));
    EXPECT_TRUE(is_printable_line("čeština 日本語"));
    for (const char* text : {"a\nb", "a\tb", "a\xFF"}) EXPECT_FALSE(is_printable_line(text));
    for (const char* one : kSteering) EXPECT_FALSE(is_printable_line(one)) << printable_json(one);
}

TEST(PrintableTest, EscapedJsonIsTheSameValue) {
    for (const char* one : kSteering) {
        const Json value = {{"text", std::string("ž ") + one + " z\n"}};
        const std::string escaped = printable_json(value.dump());
        EXPECT_EQ(printable(escaped), escaped);
        EXPECT_EQ(Json::parse(escaped), value);
    }
}

TEST(PrintableTest, ACharacterThatIsCutIsSeen) {
    EXPECT_EQ(incomplete_tail(""), 0U);
    EXPECT_EQ(incomplete_tail("abc"), 0U);
    EXPECT_EQ(incomplete_tail("č"), 0U);
    EXPECT_EQ(incomplete_tail("a\xC4"), 1U);
    EXPECT_EQ(incomplete_tail("a\xE2\x80"), 2U);
    EXPECT_EQ(incomplete_tail("\xF0\x9F\x98"), 3U);
    EXPECT_EQ(incomplete_tail("\x80\x80\x80\x80"), 0U) << "no character begins there";
}

TEST(PrintableTest, WhatIsNotUtf8IsTold) {
    for (const char* text : {"", "a", "\xC4\x8D", "\xF0\x9F\x98\x80"}) EXPECT_TRUE(is_utf8(text)) << text;
    for (const char* text : {"\xFF", "\xC4", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80"})
        EXPECT_FALSE(is_utf8(text));
}

}  // namespace
}  // namespace atl::json
