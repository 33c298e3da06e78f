#include "trainer/parallel/mesh.h"

#include <gtest/gtest.h>

namespace atl::parallel {
namespace {

TEST(MeshTest, EveryRankHasAPlaceOfItsOwn) {
    const Mesh mesh{.replicas = 2, .shards = 3, .context = 2, .tensor = 4, .pipeline = 2};
    ASSERT_EQ(mesh.ranks(), 96);
    EXPECT_EQ(mesh.sharing_ranks(), 12);
    EXPECT_EQ(mesh.data_ranks(), 6);
    for (int rank = 0; rank < mesh.ranks(); ++rank) EXPECT_EQ(mesh.rank_of(mesh.place_of(rank)), rank);
}

TEST(MeshTest, NeighboursDifferInTensorThenContextThenShardThenReplica) {
    const Mesh mesh{.replicas = 2, .shards = 2, .context = 2, .tensor = 2, .pipeline = 2};
    EXPECT_EQ(mesh.place_of(0), Mesh::Place());
    EXPECT_EQ(mesh.place_of(1).tensor, 1);
    EXPECT_EQ(mesh.place_of(2).context, 1);
    EXPECT_EQ(mesh.place_of(4).shard, 1);
    EXPECT_EQ(mesh.place_of(8).replica, 1);
    EXPECT_EQ(mesh.place_of(16).stage, 1);
}

}  // namespace
}  // namespace atl::parallel
