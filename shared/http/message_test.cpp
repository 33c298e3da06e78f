#include "shared/http/message.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::http {
namespace {

TEST(MessageTest, PercentCodingIsAnInverseForAllText) {
    std::string all;
    for (int byte = 1; byte < 128; ++byte) all.push_back(static_cast<char>(byte));
    all += "\u0080ž\u07ff\u0800€\ud7ff\ue000\uffff\U00010000\U0010ffff";
    EXPECT_EQ(percent_decode(percent_encode(all)).value(), all);
    EXPECT_EQ(percent_encode("a b/ü"), "a%20b%2F%C3%BC");
}

TEST(MessageTest, WhatIsNoTextIsRefused) {
    for (const char* text : {"%", "%4", "%zz", "a%2", "%00", "%80", "%c3", "%c3a", "%c0%af", "%e0%9f%bf", "%ed%a0%80",
                             "%f0%8f%bf%bf", "%f4%90%80%80", "%ff"})
        EXPECT_EQ(percent_decode(text).error().code, ErrorCode::kInvalidArgument) << text;
}

TEST(MessageTest, AProblemNamesItsTypeStatusAndField) {
    const Response response = Response::problem(invalid_argument("rounds", "rounds must be at least 1"), "r1");
    EXPECT_EQ(response.status, 422);
    EXPECT_EQ(response.content_type, "application/problem+json");
    const auto body = json::Json::parse(response.body);
    EXPECT_EQ(body["type"], "urn:atoll:problem:invalid-argument");
    EXPECT_EQ(body["status"], 422);
    EXPECT_EQ(body["field"], "rounds");
    EXPECT_EQ(body["cause"], "service") << "a handler's own error";
    EXPECT_EQ(body["request_id"], "r1");
}

TEST(MessageTest, AProblemQuotesNoMegabytes) {
    const std::string name(1 << 20, 'x');
    const Response response = Response::problem(invalid_argument(name, "unknown field " + name), "");
    EXPECT_LT(response.body.size(), 20'000U);
    const auto body = json::Json::parse(response.body);
    EXPECT_TRUE(body["field"].get<std::string>().starts_with("xxxx"));
    EXPECT_TRUE(body["detail"].get<std::string>().starts_with("unknown field xxxx"));
}

TEST(MessageTest, AStatusWithoutOurProblemStandsForItsUsualCode) {
    for (const auto& [status, code] : {std::pair(400, ErrorCode::kInvalidArgument),
                                       {401, ErrorCode::kUnauthenticated},
                                       {422, ErrorCode::kInvalidArgument},
                                       {429, ErrorCode::kResourceExhausted},
                                       {500, ErrorCode::kInternal},
                                       {502, ErrorCode::kUnavailable},
                                       {503, ErrorCode::kUnavailable},
                                       {504, ErrorCode::kUnavailable},
                                       {418, ErrorCode::kInternal}}) {
        EXPECT_EQ(error_code(status), code) << status;
        EXPECT_EQ(error_code(status, "about:blank"), code) << status;
    }
}

TEST(MessageTest, AWrongRequestWithoutAFieldIsABadRequest) {
    EXPECT_EQ(Response::problem(unreadable("not JSON")).status, 400);
}

TEST(MessageTest, AProblemWithBytesThatAreNotUtf8IsStillJson) {
    const Response response = Response::problem(not_found("no \xff\xfe here"));
    EXPECT_FALSE(json::Json::parse(response.body, nullptr, false).is_discarded());
}

TEST(MessageTest, AMissingTokenSaysHowToAuthenticate) {
    const Response response = Response::problem({ErrorCode::kUnauthenticated, "no", {}});
    ASSERT_EQ(response.headers.size(), 1U);
    EXPECT_EQ(response.headers[0].first, "WWW-Authenticate");
}

TEST(MessageTest, APageLimitOutsideItsBoundsIsNamed) {
    Request request;
    for (const char* limit : {"0", "1001", "-1", "x", "10x", ""}) {
        request.query["limit"] = limit;
        const auto page = parse_page(request);
        ASSERT_FALSE(page.ok()) << limit;
        EXPECT_EQ(page.error().field, "limit");
    }
    request.query["limit"] = "7";
    request.query["after"] = "k";
    EXPECT_EQ(parse_page(request).value().limit, 7);
    EXPECT_EQ(parse_page(request).value().after, "k");
}

TEST(MessageTest, ARequestWithoutABodyIsNoJson) {
    EXPECT_EQ(Request().json().error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::http
