#include "shared/base/backoff.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

using std::chrono::milliseconds;

TEST(BackoffTest, DelaysDoubleUpToTheirMaximum) {
    EXPECT_EQ(backoff_delay(1, milliseconds(50), milliseconds(5000)), milliseconds(50));
    EXPECT_EQ(backoff_delay(2, milliseconds(50), milliseconds(5000)), milliseconds(100));
    EXPECT_EQ(backoff_delay(7, milliseconds(50), milliseconds(5000)), milliseconds(3200));
    EXPECT_EQ(backoff_delay(8, milliseconds(50), milliseconds(5000)), milliseconds(5000));
    EXPECT_EQ(backoff_delay(INT64_MAX, milliseconds(50), milliseconds(5000)), milliseconds(5000));
    EXPECT_EQ(backoff_delay(0, milliseconds(50), milliseconds(5000)), milliseconds(50));
}

TEST(BackoffTest, StoppingEndsAWaitAtOnce) {
    std::stop_source source;
    source.request_stop();
    EXPECT_FALSE(wait_unless_stopped(source.get_token(), std::chrono::hours(1)));
    EXPECT_TRUE(wait_unless_stopped(std::stop_source().get_token(), milliseconds(1)));
}

}  // namespace
}  // namespace atl
