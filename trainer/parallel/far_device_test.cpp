// The engine on a device as far from the host as the backend's contract lets one be; ranks as in engine_test.cpp.

#include <gtest/gtest.h>

#include "trainer/parallel/gathered_weight_source.h"
#include "trainer/parallel/testing/tiny_run.h"

namespace atl::parallel {
namespace {

// Memory that the host cannot touch, streams in any order that their events allow.
TEST(FarDeviceTest, TrainsTheSameBits) {
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kShardGradOp,
                                    Sharding::kFullShard, Sharding::kHybridShard, Sharding::kHybridShardZero2}) {
        Variant by_rows{sharding, ActivationCheckpointing::kSelective, 2, true, std::min(2, world->size())};
        Variant offloaded = by_rows;
        by_rows.fixed_tree_sequences = 12;
        offloaded.formats.weights = tensor::DType::kBF16;
        offloaded.offloaded = true;
        for (Variant variant : {by_rows, offloaded}) {
            const Outcome at_once = run_world(variant);
            for (const std::uint64_t seed : {1U, 2U, 3U}) {
                SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << variant.offloaded << " seed " << seed);
                variant.far = seed;
                const Outcome far = run_world(variant);
                EXPECT_EQ(far.losses, at_once.losses);
                EXPECT_EQ(far.weights, at_once.weights);
                EXPECT_EQ(far.eval_loss, at_once.eval_loss);
            }
        }
    }
}

// For its loss.
TEST(FarDeviceTest, AMicroStepOfOneRankMakesTheHostWaitOnce) {
    const auto self = comm::make_self();
    Variant variant;
    variant.far = 1;
    for (const auto checkpointing : {ActivationCheckpointing::kNone, ActivationCheckpointing::kFull}) {
        variant.activation_checkpointing = checkpointing;
        EXPECT_EQ(parallel::Run(*self, variant).host_waits(), 1);
    }
}

// Of what follows two steps of a text, by weights that the ranks share.
std::vector<float> generated_logits(std::uint64_t far) {
    const model::Model model = tiny_model(true);
    const auto backend = make_backend(far);
    const ParallelLayout layout = parallel_layout(Sharding::kFullShard, world->rank(), world->size());
    Collectives ranks(*world, *backend);
    const auto weights = GatheredWeightSource::allocate(*backend, model, layout, ranks).value();
    for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
        initialize_weights(weights->store(), unit, *backend);
    }
    auto generation = model::Generation::start(model, *backend, *weights, 3, 4).value();
    std::vector<float> logits(kVocabulary);
    generation.step(std::vector<std::int32_t>{1, 2, 3}, logits);
    generation.step(std::vector<std::int32_t>{4}, logits);
    return logits;
}

TEST(FarDeviceTest, GeneratesTheSameBits) {
    EXPECT_EQ(generated_logits(7), generated_logits(0));
}

}  // namespace
}  // namespace atl::parallel
