#include "services/stack/restart_schedule.h"

#include <gtest/gtest.h>

#include <map>

namespace atl::stack {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What ran for a while, and what is killed once or twice soon after its start.
TEST(RestartScheduleTest, WhatIsKilledIsStartedAgainWithinFiveSeconds) {
    for (const int quick_ends : {0, 1, 2})
        EXPECT_LE(restarted_within(quick_ends), seconds(5)) << quick_ends << " quick ends";
}

TEST(RestartScheduleTest, WhatEndsAgainAndAgainIsStartedAfterPausesThatDoubleUpToAMinute) {
    for (const auto& [quick_ends, pause] : std::map<int, milliseconds>{{0, seconds(0)},
                                                                       {1, seconds(0)},
                                                                       {2, seconds(1)},
                                                                       {3, seconds(2)},
                                                                       {4, seconds(4)},
                                                                       {7, seconds(32)},
                                                                       {8, seconds(60)},
                                                                       {1000, seconds(60)}})
        EXPECT_EQ(restart_pause(quick_ends), pause) << quick_ends << " quick ends";
}

}  // namespace
}  // namespace atl::stack
