#include "services/store/work/fair_turn.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

namespace atl::store {
namespace {

using std::chrono::milliseconds;

class FairTurnTest : public testing::Test {
  protected:
    // Waits in a thread of its own and notes whose turn it was. It stands in the queue then.
    void ask(const std::string& caller) {
        const std::size_t before = turn_.waiting();
        threads_.emplace_back([this, caller] {
            const auto hold = turn_.take(caller);
            const std::lock_guard lock(mutex_);
            came_.push_back(hold.ok() ? caller : caller + ": " + to_string(hold.error().code));
        });
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (turn_.waiting() == before && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    }
    std::vector<std::string> came() {
        threads_.clear();
        return came_;
    }

    FairTurn turn_{{.of_caller_max = 3, .waiting_max = 5, .patience = std::chrono::minutes(1)}};
    std::mutex mutex_;
    std::vector<std::string> came_;
    std::vector<std::jthread> threads_;
};

TEST_F(FairTurnTest, EachCallerGetsATurnBeforeAnybodyGetsASecond) {
    auto first = std::optional(turn_.take("eve"));
    ASSERT_TRUE(first->ok());
    for (const char* caller : {"eve", "eve", "eve", "ada", "bob"}) ask(caller);
    first.reset();
    EXPECT_EQ(came(), (std::vector<std::string>{"eve", "ada", "bob", "eve", "eve"}));
    EXPECT_TRUE(turn_.take("eve").ok()) << "it is free again";
}

TEST_F(FairTurnTest, OneCallerHasAFewThatWaitAndKeepsNobodyOut) {
    auto first = std::optional(turn_.take("eve"));
    for (int i = 0; i < 3; ++i) ask("eve");
    EXPECT_EQ(turn_.take("eve").error().code, ErrorCode::kResourceExhausted);
    ask("ada");
    ask("bob");
    EXPECT_EQ(turn_.take("carl").error().code, ErrorCode::kUnavailable) << "all places are taken";
    first.reset();
    EXPECT_EQ(came().size(), 5U);
}

TEST_F(FairTurnTest, WhoWaitsInVainLeavesTheQueue) {
    FairTurn turn({.of_caller_max = 1, .waiting_max = 1, .patience = milliseconds(1)});
    {
        const auto held = turn.take("eve");
        for (int i = 0; i < 3; ++i) EXPECT_EQ(turn.take("ada").error().code, ErrorCode::kUnavailable);
    }
    EXPECT_TRUE(turn.take("ada").ok());
}

}  // namespace
}  // namespace atl::store
