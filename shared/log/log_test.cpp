#include "shared/log/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

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
