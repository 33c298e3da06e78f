#include "shared/base/result.h"

#include <gtest/gtest.h>

#include "shared/base/error_words.h"

namespace atl {
namespace {

Result<int> parse_even(int number) {
    if (number % 2 != 0) return invalid_argument("number", "must be even");
    return number;
}

Result<int> half_of(int number) {
    ATOLL_TRY(const int even, parse_even(number));
    return even / 2;
}

TEST(ResultTest, TryPassesTheValueOn) {
    EXPECT_EQ(half_of(8).value(), 4);
}

TEST(ResultTest, TryReturnsTheErrorWithItsField) {
    const auto result = half_of(7);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(result.error().field, "number");
}

TEST(ResultTest, AnErrorIsDescribedWithItsField) {
    EXPECT_EQ(describe(invalid_argument("store.root", "must be an absolute path")),
              "store.root: must be an absolute path");
    EXPECT_EQ(describe(invalid_argument("port", "must be an integer, got \"port\"")),
              "port: must be an integer, got \"port\"");
    EXPECT_EQ(describe(invalid_argument("language", "must be a BCP 47 language tag")),
              "language: must be a BCP 47 language tag");
    EXPECT_EQ(describe(conflict("the store.root-old is taken", "store.root")),
              "store.root: the store.root-old is taken");
    EXPECT_EQ(describe(unavailable("no broker answers")), "no broker answers");
}

TEST(ResultTest, ASentenceThatNamesItsFieldIsNotGivenItTwice) {
    for (const auto& [message, field] : {std::pair("cannot open /data/x: No such file or directory", "/data/x"),
                                         std::pair("model llama has no version 7", "version"),
                                         std::pair("--tls-certificate and --tls-key go together", "--tls-key")})
        EXPECT_EQ(describe(invalid_argument(field, message)), message);
}

TEST(ResultDeathTest, ReadingTheValueOfAFailureAborts) {
    EXPECT_DEATH((void)parse_even(1).value(), "must be even");
}

TEST(ResultTest, OnlyWhatMaySucceedLaterUnchangedIsTransient) {
    EXPECT_TRUE(is_transient(ErrorCode::kUnavailable));
    EXPECT_TRUE(is_transient(ErrorCode::kResourceExhausted));
    EXPECT_TRUE(is_transient(ErrorCode::kInsufficientStorage));
    for (const ErrorCode code :
         {ErrorCode::kInvalidArgument, ErrorCode::kUnauthenticated, ErrorCode::kPermissionDenied, ErrorCode::kNotFound,
          ErrorCode::kConflict, ErrorCode::kPreconditionFailed, ErrorCode::kTooLarge, ErrorCode::kInternal})
        EXPECT_FALSE(is_transient(code)) << to_string(code);
}

TEST(ResultTest, ARefusalIsTheWordOfWhoeverHasLookedAtIt) {
    EXPECT_TRUE(is_refusal(invalid_argument("manifest.files[0].path", "is not in the base")));
    EXPECT_TRUE(is_refusal(conflict("another version was handed in")));
    EXPECT_TRUE(is_refusal({ErrorCode::kTooLarge, "may upload 8 bytes", "body"}));
    EXPECT_FALSE(is_refusal(with_cause(invalid_argument("", "the proxy answered 400"), Cause::kElsewhere)));
    for (const ErrorCode code : {ErrorCode::kConflict, ErrorCode::kTooLarge})
        EXPECT_FALSE(is_refusal({code, "the proxy's own limit", {}, Cause::kElsewhere})) << to_string(code);
    EXPECT_FALSE(is_refusal(unreadable("not valid JSON")));
    for (const ErrorCode code : {ErrorCode::kUnauthenticated, ErrorCode::kPermissionDenied, ErrorCode::kNotFound,
                                 ErrorCode::kPreconditionFailed, ErrorCode::kResourceExhausted,
                                 ErrorCode::kInsufficientStorage, ErrorCode::kUnavailable, ErrorCode::kInternal})
        EXPECT_FALSE(is_refusal({code, "no", "field"})) << to_string(code);
}

TEST(ResultTest, ACodeIsFoundAgainByItsName) {
    for (const auto& code : error_codes()) EXPECT_EQ(parse_error_code(to_string(code.value)), code.value);
    EXPECT_NE(std::string(to_string(ErrorCode::kUnavailable)), to_string(ErrorCode::kInternal));
    EXPECT_EQ(parse_error_code("no-such-code"), std::nullopt);
}

TEST(ResultTest, ACauseIsFoundAgainByItsName) {
    for (const auto& cause : causes()) EXPECT_EQ(parse_cause(to_string(cause.value)), cause.value);
    EXPECT_EQ(parse_cause("no-such-cause"), std::nullopt);
}

TEST(ResultTest, OnlyWhoWasAskedAnswers) {
    for (const Cause cause : {Cause::kService, Cause::kSite, Cause::kJobEnded})
        EXPECT_TRUE(is_answer(with_cause(not_found("none"), cause))) << to_string(cause);
    for (const Cause cause : {Cause::kUnknown, Cause::kElsewhere, Cause::kUnreadable, Cause::kNoConnection})
        EXPECT_FALSE(is_answer(with_cause(not_found("none", "version"), cause))) << to_string(cause);
}

}  // namespace
}  // namespace atl
