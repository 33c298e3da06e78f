#include "shared/log/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "shared/base/file.h"

namespace atl::log {
namespace {

constexpr char kToken[] = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln-_bmF0";

std::string logged(const Options& options, const std::string& message) {
    testing::internal::CaptureStderr();
    set_up(options);
    spdlog::info("{}", message);
    spdlog::default_logger()->flush();
    return testing::internal::GetCapturedStderr();
}

TEST(LogTest, AnyMessageIsOneValidJsonLine) {
    const std::string hostile = std::string("quote \" back \\ newline \n nul ") + '\0' + " bad \xff utf-8 {} %v";
    const std::string line = logged({.program = "atoll-\"test\"", .level = "info", .json = true}, hostile);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
    const auto object = nlohmann::json::parse(line);
    EXPECT_EQ(object["program"], "atoll-\"test\"");
    EXPECT_EQ(object["level"], "info");
    EXPECT_EQ(object["message"].get<std::string>().substr(0, 8), "quote \" ");
    EXPECT_EQ(object["time"].get<std::string>().back(), 'Z');
}

TEST(LogTest, WhatSomebodyElseWroteSteersNoTerminal) {
    for (const bool json : {true, false}) {
        const std::string line =
            logged({.program = "x", .level = "info", .json = json}, "a\x1b[31m\xC2\x9B\xE2\x80\xAEz");
        EXPECT_NE(line.find("a[31mz"), std::string::npos) << line;
    }
}

TEST(LogTest, ALineOfSomebodyElsesTextIsNoLineOfTheLog) {
    const std::string forged = "2026-03-01T12:00:00.123Z x info: all is well";
    const std::string line = logged({.program = "x", .level = "info", .json = false}, "exit 1\n" + forged);
    EXPECT_TRUE(line.ends_with("exit 1\n    " + forged + "\n")) << line;
}

TEST(LogTest, AFileThatGrowsIsSetAsideAndOldOnesGo) {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "store.log";
    std::string last;
    for (int i = 0; i < 100; ++i) {
        last = "line " + std::to_string(i);
        const Options options{.program = "x", .level = "info", .json = true, .file = file, .file_bytes_max = 1000};
        EXPECT_EQ(logged(options, last), "");
    }
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
        names.insert(entry.path().filename());
        EXPECT_LE(entry.file_size(), 1000U) << entry.path();
    }
    EXPECT_EQ(names, (std::set<std::string>{"store.log", "store.1.log", "store.2.log", "store.3.log"}));
    EXPECT_NE(read_file(file)->find(last), std::string::npos);
    set_up({.program = "x"});
}

TEST(LogTest, LinesBelowTheLevelAreDropped) {
    EXPECT_EQ(logged({.program = "x", .level = "warn", .json = true}, "quiet"), "");
}

TEST(LogTest, TokensAreRedactedInBothFormats) {
    for (const bool json : {true, false}) {
        const std::string line = logged({.program = "x", .level = "info", .json = json}, std::string("T=") + kToken);
        EXPECT_EQ(line.find("eyJ"), std::string::npos) << line;
        EXPECT_NE(line.find("T=[token]"), std::string::npos) << line;
    }
}

TEST(RedactTest, EveryTokenGoesAndOtherTextStays) {
    const std::string token = kToken;
    EXPECT_EQ(redact("a " + token + ", b \"" + token + "\"."), "a [token], b \"[token]\".");
    EXPECT_EQ(redact("Bearer " + token.substr(0, 30)), "Bearer [token]") << "also a truncated token";
    EXPECT_EQ(redact("eyJust a word. And 1.2.3"), "eyJust a word. And 1.2.3");
}

}  // namespace
}  // namespace atl::log
