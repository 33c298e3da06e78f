#include "trainer/parallel/sharding.h"

#include <gtest/gtest.h>

namespace atl::parallel {
namespace {

model::ParameterGroup group_of(const std::vector<std::int64_t>& sizes) {
    model::ParameterGroup group;
    for (const std::int64_t size : sizes) {
        model::Parameter parameter;
        parameter.shape = {size};
        group.add(parameter);
    }
    return group;
}

TEST(CutTest, ShardsAreEqualAlignedAndHoldTheWholeGroup) {
    const model::ParameterGroup group = group_of({100, 3});
    for (const int ranks : {1, 2, 3, 4, 7}) {
        std::int64_t at = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            const GroupCut cut = cut_group(group, divide(Sharding::kFullShard, rank, ranks));
            EXPECT_EQ(cut.begin, at);
            EXPECT_EQ(cut.shard * 4 % tensor::kAlignmentBytes, 0);
            EXPECT_EQ(cut.shard * ranks, cut.whole);
            EXPECT_GE(cut.whole, 103);
            at += cut.shard;
        }
    }
}

TEST(CutTest, AHybridShardIsOfTheGroupAndIsCutOnceMoreAmongItsCopies) {
    const model::ParameterGroup group = group_of({1000});
    for (int rank = 0; rank < 6; ++rank) {
        const Division division = divide(Sharding::kHybridShard, rank, 6, 2);
        EXPECT_EQ(division.sharding, Sharding::kFullShard);
        EXPECT_EQ(division.copies(), 3);
        EXPECT_EQ(division.copy(), rank / 2);
        const GroupCut cut = cut_group(group, division);
        EXPECT_EQ(cut.whole, cut_group(group, divide(Sharding::kFullShard, 0, 6)).whole);
        EXPECT_EQ(cut.shard, cut.whole / 2);
        EXPECT_EQ(cut.begin, rank % 2 * cut.shard);
        EXPECT_EQ(cut.shard / 3 * 4 % tensor::kAlignmentBytes, 0);
    }
}

TEST(CutTest, AHybridGroupOfOneRankShardsNothing) {
    EXPECT_EQ(divide(Sharding::kHybridShard, 1, 4, 1).sharding, Sharding::kNone);
    EXPECT_EQ(divide(Sharding::kHybridShardZero2, 1, 4, 1).copies(), 1);
    EXPECT_EQ(divide(Sharding::kFullShard, 0, 1).sharding, Sharding::kNone);
}

TEST(PiecesTest, ARangeIsMadeOfThePartsOfParametersInIt) {
    const model::ParameterGroup group = group_of({10, 5, 20});
    const auto pieces = pieces_of(group, 8, 10);
    ASSERT_EQ(pieces.size(), 3U);
    EXPECT_EQ(pieces[0].parameter, 0U);
    EXPECT_EQ(pieces[0].begin, 8);
    EXPECT_EQ(pieces[0].at, 0);
    EXPECT_EQ(pieces[0].count, 2);
    EXPECT_EQ(pieces[1].begin, 0);
    EXPECT_EQ(pieces[1].at, 2);
    EXPECT_EQ(pieces[1].count, 5);
    EXPECT_EQ(pieces[2].parameter, 2U);
    EXPECT_EQ(pieces[2].at, 7);
    EXPECT_EQ(pieces[2].count, 3);
    EXPECT_TRUE(pieces_of(group, 35, 29).empty());
}

}  // namespace
}  // namespace atl::parallel
