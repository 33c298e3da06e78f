#include "services/dispatch/work/steps_in_hand.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using Clock = StepsInHand::Clock;

TEST(StepsInHandTest, AStepThatIsSlowLeavesItsPlaceToAnother) {
    StepsInHand steps(2, 4);
    const Clock::time_point start{};
    const auto one = steps.take(start);
    ASSERT_TRUE(one);
    one->is_for("hung", false);
    const auto other = steps.take(start + std::chrono::seconds(1));
    ASSERT_TRUE(other);
    other->is_for("healthy", false);
    EXPECT_FALSE(steps.take(start + std::chrono::seconds(1)));
    EXPECT_EQ(steps.slow_facilities(start + std::chrono::seconds(1)), std::vector<std::string>());
    const auto third = steps.take(start + std::chrono::seconds(2));
    EXPECT_TRUE(third);
    EXPECT_EQ(steps.slow_facilities(start + std::chrono::seconds(2)), std::vector<std::string>{"hung"});
    EXPECT_FALSE(steps.take(start + std::chrono::seconds(2)));
}

TEST(StepsInHandTest, SilentSitesHaveSoMuchRoomAndNoMore) {
    StepsInHand steps(2, 3);
    const Clock::time_point now{};
    std::vector<std::unique_ptr<StepsInHand::Place>> silent;
    for (; steps.has_room_for_silent(now); silent.back()->is_for("silent", true)) {
        silent.push_back(steps.take(now));
        ASSERT_TRUE(silent.back());
    }
    EXPECT_EQ(silent.size(), 3U);
    const auto one = steps.take(now);
    const auto other = steps.take(now);
    EXPECT_TRUE(one && other);
    EXPECT_FALSE(steps.take(now));
    silent.pop_back();
    EXPECT_TRUE(steps.has_room_for_silent(now));
}

}  // namespace
}  // namespace atl::dispatch
