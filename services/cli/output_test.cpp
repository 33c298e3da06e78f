#include "services/cli/output.h"

#include <gtest/gtest.h>

#include <algorithm>

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

std::size_t widest_line(const std::string& text) {
    std::size_t widest = 0;
    for (const std::string_view line : split(text, '\n'))
        widest = std::max(widest, static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
                              return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
                          })));
    return widest;
}

Table job_table() {
    Table table({"job", cut("name"), "state", droppable("by"), droppable("submitted"), note("waits for")});
    table.add({"01jd3v7e8m2k4t6w8y0a2c4e6g", "italian-and-czech-together", "running", "ada", "2026-03-01T12:00:00.123Z",
               "leonardo: Priority since 2026-03-01T12:00:00Z"});
    table.add({"01jd3v7e8m2k4t6w8y0a2c4e6h", "it", "completed", "bo", "2026-03-02T12:00:00Z", ""});
    return table;
}

TEST(TableTest, WhatFitsItsTerminalIsAsInAPipe) {
    EXPECT_EQ(job_table().text(200), job_table().text());
    EXPECT_EQ(widest_line(job_table().text(widest_line(job_table().text()))), widest_line(job_table().text()));
}

TEST(TableTest, OnANarrowTerminalTimesAndNotesGiveWayFirstThenColumnsThenTexts) {
    EXPECT_EQ(job_table().text(100),
              "job                         name                        state      by   submitted\n"
              "01jd3v7e8m2k4t6w8y0a2c4e6g  italian-and-czech-together  running    ada  2026-03-01T12:00Z\n"
              "    leonardo: Priority since 2026-03-01T12:00:00Z\n"
              "01jd3v7e8m2k4t6w8y0a2c4e6h  it                          completed  bo   2026-03-02T12:00Z\n");
    EXPECT_EQ(job_table().text(80),
              "job                         name                        state      by  …\n"
              "01jd3v7e8m2k4t6w8y0a2c4e6g  italian-and-czech-together  running    ada\n"
              "    leonardo: Priority since 2026-03-01T12:00:00Z\n"
              "01jd3v7e8m2k4t6w8y0a2c4e6h  it                          completed  bo\n"
              "(… left out: submitted; a wider terminal, a pipe and --json have them)\n");
    EXPECT_EQ(job_table().text(56),
              "job                         name            state  …\n"
              "01jd3v7e8m2k4t6w8y0a2c4e6g  italian-and-c…  running\n"
              "    leonardo: Priority since 2026-03-01T12:00:00Z\n"
              "01jd3v7e8m2k4t6w8y0a2c4e6h  it              completed\n"
              "(… left out: by, submitted; a wider terminal, a pipe and\n"
              "    --json have them)\n");
    Table versions({"preparation", cut("facility"), droppable("begun"), note("version")});
    versions.add({"01jd3v7e8m2k4t6w8y0a2c4e6g", "leonardo", "2026-03-01T12:00:00Z", "7"});
    EXPECT_EQ(versions.text(50),
              "preparation                 facility  version  …\n"
              "01jd3v7e8m2k4t6w8y0a2c4e6g  leonardo  7\n"
              "(… left out: begun; a wider terminal, a pipe and\n"
              "    --json have them)\n")
        << "a short note stays";
    versions.add({"01jd3v7e8m2k4t6w8y0a2c4e6h", "karolina", "2026-03-02T12:00:00Z", "the input cannot be read"});
    EXPECT_EQ(versions.text(50),
              "preparation                 facility  …\n"
              "01jd3v7e8m2k4t6w8y0a2c4e6g  leonardo\n"
              "    version: 7\n"
              "01jd3v7e8m2k4t6w8y0a2c4e6h  karolina\n"
              "    the input cannot be read\n"
              "(… left out: begun; a wider terminal, a pipe and\n"
              "    --json have them)\n");
    Table quiet({"job", cut("name"), "state", droppable("submitted"), note("waits for")});
    quiet.add({"01jd3v7e8m2k4t6w8y0a2c4e6h", "italian-czech", "completed", "2026-03-02T12:00:00Z", ""});
    EXPECT_EQ(quiet.text(80),
              "job                         name           state      submitted\n"
              "01jd3v7e8m2k4t6w8y0a2c4e6h  italian-czech  completed  2026-03-02T12:00Z\n")
        << "what says nothing gives way first";
    for (std::size_t width = 54; width < 200; ++width)
        EXPECT_LE(widest_line(job_table().text(width)), width) << job_table().text(width);
    EXPECT_NE(job_table().text(20).find("01jd3v7e8m2k4t6w8y0a2c4e6g"), std::string::npos) << "what the row is about";
}

TEST(OutputTest, LinesAreFoldedAtWordsAndAWordThatIsTooLongIsBroken) {
    EXPECT_EQ(fold("one two three", 0, 2, 0), "one two three\n");
    EXPECT_EQ(fold("one two three", 0, 2, 8), "one two\n  three\n");
    EXPECT_EQ(fold("one  two", 4, 4, 8), "one\n    two\n") << "the first line begins at the indent";
    EXPECT_EQ(fold("čččččččč x", 0, 2, 5), "ččččč\n  ččč\n  x\n");
}

TEST(OutputTest, FurtherLinesOfATextAreIndented) {
    EXPECT_EQ(with_indented_lines("a\nround 2 opened"), "a\n    round 2 opened");
    testing::internal::CaptureStdout();
    print_line("error: exit 1\njob demo completed");
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "error: exit 1\n    job demo completed\n");
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

TEST(OutputTest, OneOfAThingIsNotSeveral) {
    EXPECT_EQ(counted(1, "job"), "1 job");
    EXPECT_EQ(counted(0, "job"), "0 jobs");
    EXPECT_EQ(utc_time(0), "1970-01-01T00:00:00Z");
}

}  // namespace
}  // namespace atl::cli
