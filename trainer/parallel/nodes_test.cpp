// Ranks on several machines, as the engine sees them; ranks as in engine_test.cpp. With 4 ranks these are 4 machines, 2
// and 1.

#include <gtest/gtest.h>

#include "trainer/parallel/testing/nodes_comm.h"
#include "trainer/parallel/testing/tiny_run.h"

namespace atl::parallel {
namespace {

using Told = NodesComm::Told;

Outcome run_on_nodes(int ranks_on_node, Told told, const Variant& variant) {
    NodesComm nodes(*world, ranks_on_node, told);
    return run_on(nodes, variant);
}

TEST(NodesTest, MachinesChangeNoBit) {
    for (const Sharding sharding : kShardings) {
        for (const std::uint64_t far : {0U, 1U}) {
            Variant variant{sharding, ActivationCheckpointing::kFull, world->size() < 8 ? 2 : 1, true, world->size()};
            variant.far = far;
            const Outcome hidden = run_on_nodes(1, Told::kHidden, variant);
            for (int ranks_on_node = 1; ranks_on_node <= world->size(); ranks_on_node *= 2) {
                SCOPED_TRACE(testing::Message()
                             << static_cast<int>(sharding) << " far " << far << " on each node " << ranks_on_node);
                const Outcome told = run_on_nodes(ranks_on_node, Told::kMachines, variant);
                expect_same_bits(told, hidden);
                if (far != 0 || ranks_on_node != 2) continue;
                Variant in_pieces = variant;
                in_pieces.reduce_scratch = 2048;
                const Outcome pieces = run_on_nodes(ranks_on_node, Told::kMachines, in_pieces);
                EXPECT_EQ(pieces.losses, hidden.losses);
                EXPECT_EQ(pieces.weights, hidden.weights);
            }
        }
    }
}

// The sum over a machine's ranks is rounded before it leaves: as in the hybrid modes.
TEST(NodesTest, GradientsThatTravelInBf16AreRoundedOnceMoreBetweenMachines) {
    Variant variant;
    variant.formats.reduced = tensor::DType::kBF16;
    const Outcome hidden = run_on_nodes(1, Told::kHidden, variant);
    for (int ranks_on_node = 1; ranks_on_node <= world->size(); ranks_on_node *= 2) {
        variant.sharding = Sharding::kHybridShard;
        variant.shard_group = ranks_on_node;
        const Outcome hybrid = run_on_nodes(1, Told::kHidden, variant);
        for (const Sharding sharding : {Sharding::kNone, Sharding::kShardGradOp, Sharding::kFullShard}) {
            SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << " on each node " << ranks_on_node);
            variant.sharding = sharding;
            const Outcome told = run_on_nodes(ranks_on_node, Told::kMachines, variant);
            EXPECT_EQ(told.losses, hybrid.losses);
            EXPECT_EQ(told.weights, hybrid.weights);
            const bool is_rounded = ranks_on_node > 1 && ranks_on_node < world->size();
            if (world->rank() == 0) {
                EXPECT_EQ(told.weights != hidden.weights, is_rounded);
            }
            if (ranks_on_node != 2) continue;
            Variant in_pieces = variant;
            in_pieces.reduce_scratch = 2048;
            in_pieces.far = 1;
            const Outcome pieces = run_on_nodes(ranks_on_node, Told::kMachines, in_pieces);
            EXPECT_EQ(pieces.losses, told.losses);
            EXPECT_EQ(pieces.weights, told.weights);
        }
    }
}

std::int64_t bytes_between_nodes(int ranks_on_node, Told told, Sharding sharding) {
    NodesComm nodes(*world, ranks_on_node, told);
    Variant variant;
    variant.sharding = sharding;
    parallel::Run run(nodes, variant);
    nodes.count_anew();
    run.micro_step();
    return nodes.sent_bytes();
}

TEST(NodesTest, WeightsAndGradientsCrossBetweenTwoMachinesOnceNotOnceARank) {
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardGradOp, Sharding::kFullShard}) {
        for (int ranks_on_node = 1; ranks_on_node <= world->size(); ranks_on_node *= 2) {
            SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << " on each node " << ranks_on_node);
            const std::int64_t hidden = bytes_between_nodes(ranks_on_node, Told::kHidden, sharding);
            EXPECT_EQ(hidden > 0, ranks_on_node < world->size());
            EXPECT_EQ(bytes_between_nodes(ranks_on_node, Told::kMachines, sharding) * ranks_on_node, hidden);
        }
    }
}

}  // namespace
}  // namespace atl::parallel
