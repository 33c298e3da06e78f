#include "services/cli/output.h"

#include <gtest/gtest.h>

namespace atl::cli {
namespace {

TEST(TableTest, ColumnsAreAsWideAsTheirCharactersNotTheirBytes) {
    Table table({"name", "text"});
    table.add({"čeština", "a"});
    table.add({"it", "b"});
    EXPECT_EQ(table.text(), "name     text\nčeština  a\nit       b\n");
}

TEST(TableTest, ARowIsOneLine) {
    Table table({"name", "error"});
    table.add({"leonardo", "it failed:\nno such file"});
    EXPECT_EQ(table.text(), "name      error\nleonardo  it failed: no such file\n");
    Table steered({"name", "licence"});
    steered.add({"a\x1b[31m\tb", "\xE2\x80\xAEtxt.exe"});
    EXPECT_EQ(steered.text(), "name     licence\na[31m b  txt.exe\n");
}

TEST(OutputTest, NumbersKeepAHandfulOfDigits) {
    EXPECT_EQ(human_number(12340.4), "12340");
    EXPECT_EQ(human_number(5.21349), "5.213");
    EXPECT_EQ(human_number(1e308), "1e+308");
}

TEST(OutputTest, AnErrorShowsItsFieldAndWhatToDo) {
    const std::string text = explain({ErrorCode::kUnauthenticated, "no token", "--token-file"});
    EXPECT_TRUE(text.starts_with("error: --token-file: no token\n")) << text;
    EXPECT_NE(text.find("ATOLL_TOKEN"), std::string::npos) << text;
    EXPECT_EQ(explain(invalid_argument("rounds", "must be at least 1")), "error: rounds: must be at least 1");
}

TEST(OutputTest, BadInputExitsWithTwoAndOtherFailuresWithOne) {
    EXPECT_EQ(exit_status(invalid_argument("x", "wrong")), 2);
    EXPECT_EQ(exit_status({ErrorCode::kResourceExhausted, "full", ""}), 3);
    EXPECT_EQ(exit_status(unavailable("away")), 1);
}

}  // namespace
}  // namespace atl::cli
