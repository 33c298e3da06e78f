#include "shared/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace atl {
namespace {

TEST(ParallelTest, EachIndexIsWorkedOnOnceByAThreadWithinTheBound) {
    std::vector<std::atomic<int>> times(1000);
    std::atomic<bool> is_thread_wrong = false;
    const Status status = for_each_parallel(times.size(), 4, [&](std::size_t i, int thread) -> Status {
        ++times[i];
        if (thread < 0 || thread >= 4) is_thread_wrong = true;
        return {};
    });
    EXPECT_TRUE(status.ok());
    for (const auto& count : times) EXPECT_EQ(count, 1);
    EXPECT_FALSE(is_thread_wrong);
}

TEST(ParallelTest, TheFirstErrorEndsItAndIsReturned) {
    int calls = 0;
    const Status status = for_each_parallel(100, 1, [&](std::size_t i, int) -> Status {
        ++calls;
        if (i == 3) return not_found("the third");
        return {};
    });
    EXPECT_EQ(status.error().message, "the third");
    EXPECT_EQ(calls, 4);
}

TEST(ParallelTest, WhatIsThrownIsAnErrorAndEndsNoProcess) {
    const Status status =
        for_each_parallel(8, 4, [](std::size_t, int) -> Status { throw std::runtime_error("thrown in a thread"); });
    EXPECT_EQ(status.error().code, ErrorCode::kInternal);
    EXPECT_EQ(status.error().message, "thrown in a thread");
}

TEST(ParallelTest, WithoutThreadsTheCallerDoesTheWork) {
    int calls = 0;
    EXPECT_TRUE(for_each_parallel(3, 0, [&](std::size_t, int) -> Status { return ++calls, Status(); }).ok());
    EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace atl
