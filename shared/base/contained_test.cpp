#include "shared/base/contained.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace atl {
namespace {

TEST(ContainedTest, WhatIsReturnedPassesThrough) {
    EXPECT_EQ(contained([]() -> Result<int> { return 7; }).value(), 7);
    EXPECT_EQ(contained([]() -> Result<int> { return not_found("no such thing"); }).error().code, ErrorCode::kNotFound);
    EXPECT_TRUE(contained([] { return Status(); }).ok());
}

TEST(ContainedTest, WhatIsThrownIsAnInternalError) {
    const Status status = contained([]() -> Status { throw std::out_of_range("rounds"); });
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInternal);
    EXPECT_EQ(status.error().message, "rounds");
}

}  // namespace
}  // namespace atl
