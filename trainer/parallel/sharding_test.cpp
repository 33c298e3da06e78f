#include "trainer/parallel/sharding.h"

#include <gtest/gtest.h>

#include <set>

namespace atl::parallel {
namespace {

model::FsdpUnit unit_of(const std::vector<std::int64_t>& sizes) {
    model::FsdpUnit unit;
    for (const std::int64_t size : sizes) {
        model::Parameter parameter;
        parameter.shape = {size};
        unit.add(parameter);
    }
    return unit;
}

TEST(ShardSpecTest, ShardsAreEqualAlignedAndHoldTheWholeGroup) {
    const model::FsdpUnit unit = unit_of({100, 3});
    for (const int ranks : {1, 2, 3, 4, 7}) {
        std::int64_t at = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            const ShardSpec spec = shard_spec(unit, parallel_layout(Sharding::kFullShard, rank, ranks));
            EXPECT_EQ(spec.begin, at);
            EXPECT_EQ(spec.shard * 4 % tensor::kAlignmentBytes, 0);
            EXPECT_EQ(spec.shard * ranks, spec.whole);
            EXPECT_GE(spec.whole, 103);
            at += spec.shard;
        }
    }
}

TEST(ShardSpecTest, AHybridShardIsOfTheGroupAndIsCutOnceMoreAmongItsCopies) {
    const model::FsdpUnit unit = unit_of({1000});
    for (int rank = 0; rank < 6; ++rank) {
        const ParallelLayout layout = parallel_layout(Sharding::kHybridShard, rank, 6, 2);
        EXPECT_EQ(layout.sharding, Sharding::kFullShard);
        EXPECT_EQ(layout.replicas(), 3);
        EXPECT_EQ(layout.replica(), rank / 2);
        const ShardSpec spec = shard_spec(unit, layout);
        EXPECT_EQ(spec.whole, shard_spec(unit, parallel_layout(Sharding::kFullShard, 0, 6)).whole);
        EXPECT_EQ(spec.shard, spec.whole / 2);
        EXPECT_EQ(spec.begin, rank % 2 * spec.shard);
        EXPECT_EQ(spec.shard / 3 * 4 % tensor::kAlignmentBytes, 0);
    }
}

TEST(ShardSpecTest, AHybridGroupOfOneRankShardsNothing) {
    EXPECT_EQ(parallel_layout(Sharding::kHybridShard, 1, 4, 1).sharding, Sharding::kNone);
    EXPECT_EQ(parallel_layout(Sharding::kHybridShardZero2, 1, 4, 1).replicas(), 1);
    EXPECT_EQ(parallel_layout(Sharding::kFullShard, 0, 1).sharding, Sharding::kNone);
}

TEST(ShardSpecTest, RanksOfAContextKeepShardsAndSeeTheSameRows) {
    const Mesh mesh{.replicas = 2, .shards = 2, .context = 2, .tensor = 3};
    std::set<std::int64_t> begins;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const ParallelLayout layout = parallel_layout(Sharding::kHybridShard, mesh, rank);
        EXPECT_EQ(layout.ranks(), 8);
        EXPECT_EQ(layout.rank(), rank / 3);
        EXPECT_EQ(layout.shard_ranks(), 4);
        EXPECT_EQ(layout.data_rank(), rank / 6);
        begins.insert(shard_spec(unit_of({1000}), layout).begin);
    }
    EXPECT_EQ(begins.size(), 4U);
}

TEST(PiecesTest, ARangeIsMadeOfThePartsOfParametersInIt) {
    const model::FsdpUnit unit = unit_of({10, 5, 20});
    const auto pieces = split_by_parameter(unit, 8, 10);
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
    EXPECT_TRUE(split_by_parameter(unit, 35, 29).empty());
}

}  // namespace
}  // namespace atl::parallel
