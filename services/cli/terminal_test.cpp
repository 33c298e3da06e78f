#include "services/cli/terminal.h"

#include <gtest/gtest.h>

#include <sstream>

namespace atl::cli {
namespace {

TEST(TerminalTest, WhatOthersWroteSteersNothing) {
    std::ostringstream out;
    {
        const PrintableOutput printable(out);
        out << "a\x1b]0;title\x07" << '\r' << "b \xC2\x9B" << "31m \xE2\x80\xAE" << "c\n";
    }
    EXPECT_EQ(out.str(), "a]0;titleb 31m c\n");
}

TEST(TerminalTest, ACharacterThatComesInPartsIsOne) {
    std::ostringstream out;
    {
        const PrintableOutput printable(out);
        out << "\xC4" << std::flush << "\x8D \xC2";
        out.put('\x9B');
        out << "\xE2\x80";
    }
    EXPECT_EQ(out.str(), "č \xEF\xBF\xBD\xEF\xBF\xBD") << "C1 in two parts is none; what never ends is replaced";
}

TEST(TerminalTest, ALineThatIsTooLongTakesMoreRows) {
    EXPECT_EQ(rows_on_terminal("", 80), 0);
    EXPECT_EQ(rows_on_terminal("\n\n", 80), 2);
    EXPECT_EQ(rows_on_terminal(std::string(80, 'x') + "\n" + std::string(81, 'x') + "\n", 80), 3);
    EXPECT_EQ(rows_on_terminal("čččč\n", 4), 1);
    EXPECT_EQ(rows_on_terminal(std::string(200, 'x') + "\n", 0), 1);
}

TEST(TerminalTest, OurOwnControlSequencesPass) {
    std::ostringstream out;
    {
        const PrintableOutput printable(out);
        out << "50 %";
        write_as_it_is(out, "\x1b[K");
        out << "\x1b[K";
    }
    write_as_it_is(out, "\r");
    EXPECT_EQ(out.str(), "50 %\x1b[K[K\r");
}

}  // namespace
}  // namespace atl::cli
