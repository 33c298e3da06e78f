#include "trainer/train/threads.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace atl::train {
namespace {

using Sets = std::vector<std::string>;

std::vector<int> shares(const Sets& sets, double quota = std::numeric_limits<double>::infinity()) {
    std::vector<int> all;
    for (std::size_t rank = 0; rank < sets.size(); ++rank) all.push_back(thread_share(sets, rank, quota));
    return all;
}

using Shares = std::vector<int>;

TEST(ThreadsTest, RanksThatShareAllCoresDivideThem) {
    EXPECT_EQ(shares({"1111"}), (Shares{4}));
    EXPECT_EQ(shares({"1111", "1111"}), (Shares{2, 2}));
    EXPECT_EQ(shares(Sets(3, "1111")), (Shares{1, 1, 1}));
    EXPECT_EQ(shares(Sets(6, "111111")), Shares(6, 1)) << "six sixths";
    EXPECT_EQ(shares(Sets(3, "11")), (Shares{1, 1, 1})) << "more ranks than cores";
}

TEST(ThreadsTest, ARankThatIsBoundToItsOwnShareKeepsIt) {
    EXPECT_EQ(shares({"11110000", "00001111"}), (Shares{4, 4}));
    EXPECT_EQ(shares({"1", "0111"}), (Shares{1, 3}));
    EXPECT_EQ(shares({"1111", "1111", "00001111", "00001111"}), Shares(4, 2)) << "two ranks on each socket";
}

TEST(ThreadsTest, RanksThatShareSomeCoresNeverHaveMoreThreadsThanThereAre) {
    EXPECT_EQ(shares({"1", "11"}), (Shares{1, 1}));
    EXPECT_EQ(shares({"110", "011"}), (Shares{1, 1}));
    EXPECT_EQ(shares({"11", "11", "1111"}), (Shares{1, 1, 2}));
}

TEST(ThreadsTest, AQuotaIsForAllRanksOfTheMachine) {
    EXPECT_EQ(shares({"11111111", "11111111"}, 4), (Shares{2, 2}));
    EXPECT_EQ(shares({"11111111"}, 2.5), (Shares{2}));
    EXPECT_EQ(shares({"11", "0011"}, 100), (Shares{2, 2}));
    EXPECT_EQ(shares({"11"}, 0.5), (Shares{1}));
}

TEST(ThreadsTest, CoresThatTightlyBoundRanksLeaveIdleAreTold) {
    const Sets tight = {"1", "01"};
    EXPECT_NE(idle_cores_warning(tight, "11111111", 0).find("6 of the 8"), std::string::npos);
    EXPECT_NE(idle_cores_warning(Sets{"11", "0011"}, "111111", 0), "") << "cores with two hardware threads";
    EXPECT_NE(idle_cores_warning(Sets{"1111"}, "11111111", 8), "") << "all its threads share four cores";
    EXPECT_EQ(idle_cores_warning(tight, "11", 0), "") << "there are no others";
    EXPECT_EQ(idle_cores_warning(tight, "11111111", 1), "") << "no more threads were wanted";
    EXPECT_EQ(idle_cores_warning(Sets{"1111", "00001111"}, "111111111111", 0), "") << "somebody chose that";
    EXPECT_EQ(idle_cores_warning(tight, "", 0), "") << "a launcher that cannot be seen";
}

TEST(ThreadsTest, MoreThreadsThanCoresAreTold) {
    EXPECT_NE(busy_cores_warning(256, 2).find("--threads 256"), std::string::npos);
    EXPECT_EQ(busy_cores_warning(2, 2), "");
    constexpr double kNone = std::numeric_limits<double>::infinity();
    EXPECT_TRUE(check_thread_count(Sets{"11"}, 32, kNone).ok());
    EXPECT_EQ(check_thread_count(Sets{"11"}, 33, kNone).error().field, "--threads");
    EXPECT_FALSE(check_thread_count(Sets{"11"}, 17, 1).ok()) << "a quota of one core";
    EXPECT_TRUE(check_thread_count(Sets{"10", "01"}, 16, kNone).ok());
    EXPECT_NE(check_thread_count(Sets{"11", "11"}, 17, kNone).error().message.find("at most 16"), std::string::npos);
    EXPECT_TRUE(check_thread_count(Sets(100, "11"), 1, kNone).ok()) << "ranks are the launcher's to count";
    EXPECT_EQ(busy_cores_warning(0, 2), "") << "as many as there are cores";
}

}  // namespace
}  // namespace atl::train
