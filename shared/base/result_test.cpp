#include "shared/base/result.h"

#include <gtest/gtest.h>

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

TEST(ResultDeathTest, ReadingTheValueOfAFailureAborts) {
    EXPECT_DEATH((void)parse_even(1).value(), "must be even");
}

}  // namespace
}  // namespace atl
