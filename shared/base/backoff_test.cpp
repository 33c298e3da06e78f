#include "shared/base/backoff.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

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

// The loops of the relay and of the inbox are this one.
TEST(BackoffTest, WhatAStepThrowsEndsThatAttemptAndNotTheProcess) {
    std::stop_source source;
    std::vector<std::string> errors;
    int steps = 0;
    repeat_until_stopped(
        source.get_token(), milliseconds(1), milliseconds(1),
        [&]() -> Status {
            if (++steps == 1) throw std::runtime_error("thrown in a thread");
            if (steps == 2) return unavailable("not now");
            source.request_stop();
            return {};
        },
        [&](const Error& error) { errors.push_back(error.message); });
    EXPECT_EQ(steps, 3);
    EXPECT_EQ(errors, (std::vector<std::string>{"thrown in a thread", "not now"}));
}

TEST(BackoffTest, AnErrorWhileItIsToStopIsTheLast) {
    std::stop_source source;
    int steps = 0;
    repeat_until_stopped(
        source.get_token(), std::chrono::hours(1), std::chrono::hours(1),
        [&]() -> Status {
            ++steps;
            source.request_stop();
            return unavailable("not now");
        },
        [](const Error&) {});
    EXPECT_EQ(steps, 1);
}

}  // namespace
}  // namespace atl
