#include "shared/site/hand_in.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/json/json.h"
#include "shared/site/exit_status.h"

namespace atl::site {
namespace {

using json::Json;

TEST(HandInTest, AFailureIsReadAsItWasWritten) {
    for (const Error& error :
         {invalid_argument("manifest", "is no model"), conflict("another version was handed in"),
          with_cause(not_found("no such model"), Cause::kService), unavailable("the store is away"),
          Error{ErrorCode::kTooLarge, "may upload 8 bytes", "body"}}) {
        const auto read = parse_hand_in_failure(Json::parse(to_json(hand_in_failure(error)).dump()));
        ASSERT_TRUE(read.ok()) << error.message;
        EXPECT_EQ(read->error.code, error.code);
        EXPECT_EQ(read->error.message, error.message);
        EXPECT_EQ(read->error.field, error.field);
        EXPECT_EQ(read->is_refused, is_refusal(error));
    }
}

TEST(HandInTest, AFailureIsShortAndPrintableWhateverWasSaid) {
    const std::string text =
        to_json(hand_in_failure(conflict(std::string(100'000, '\x1b'), std::string(5000, 'f')))).dump();
    EXPECT_LT(text.size(), 6000U);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(HandInTest, WhatIsNoFailureIsRefused) {
    for (const char* text : {"{}", R"({"error":"text"})", R"({"error":{"code":"conflict"}})",
                             R"({"error":{"code":"gremlins","detail":"a"}})",
                             R"({"error":{"code":"conflict","detail":"a"},"refused":"yes"})"})
        EXPECT_FALSE(parse_hand_in_failure(Json::parse(text)).ok()) << text;
}

TEST(HandInTest, TheExitStatusTellsWhetherToTryAgain) {
    EXPECT_EQ(push_exit_status(unavailable("away")), kExitTryLater);
    EXPECT_EQ(push_exit_status({ErrorCode::kInsufficientStorage, "full", {}}), kExitTryLater);
    EXPECT_EQ(push_exit_status(invalid_argument("--model", "is none")), kExitUsage);
    for (const ErrorCode code :
         {ErrorCode::kTooLarge, ErrorCode::kNotFound, ErrorCode::kConflict, ErrorCode::kInternal})
        EXPECT_EQ(push_exit_status({code, "no", {}}), 1) << to_string(code);
}

}  // namespace
}  // namespace atl::site
