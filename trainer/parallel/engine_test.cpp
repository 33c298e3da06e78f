// Runs with one rank under ctest's own program, and with 2 and 4 under mpirun: every way of sharding gives the losses
// and weights of one process that sees all rows.
#include "trainer/parallel/engine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "shared/base/file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/comm/testing/run_tests.h"
#include "trainer/kernels/testing/worse.h"
#include "trainer/parallel/testing/tiny_run.h"

namespace atl::parallel {
namespace {

void expect_near(const Outcome& outcome, const Outcome& reference, double tolerance) {
    for (int step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(outcome.losses[step], reference.losses[step], tolerance) << "step " << step;
    }
    EXPECT_NEAR(outcome.eval_loss / reference.eval_loss, 1, tolerance);
    if (world->rank() != 0) return;
    ASSERT_EQ(outcome.weights.size(), reference.weights.size());
    double worst = 0;
    for (std::size_t i = 0; i < outcome.weights.size(); ++i) {
        worst = kernels::worse(worst, std::abs(static_cast<double>(outcome.weights[i]) - reference.weights[i]));
    }
    EXPECT_LT(worst, tolerance);
}

// Of another format than fp32: its steps end within a part of the way that the weights of `wide` went.
void expect_same_way(const Outcome& outcome, const Outcome& wide, bool tied, double part_max) {
    const std::vector<float> start = Run(*world, {.tied = tied}).weights();
    if (world->rank() != 0) return;
    ASSERT_EQ(outcome.weights.size(), start.size());
    EXPECT_LT(l2_distance(outcome.weights, wide.weights), part_max * l2_distance(start, wide.weights));
}

class EngineTest : public testing::TestWithParam<bool> {};

TEST_P(EngineTest, EveryShardingGivesTheStepsOfOneProcess) {
    const bool tied = GetParam();
    const Outcome reference = run_alone(tied);
    for (const Sharding sharding :
         {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kShardGradOp, Sharding::kFullShard}) {
        SCOPED_TRACE(static_cast<int>(sharding));
        Variant variant{sharding, ActivationCheckpointing::kNone, 1, tied};
        expect_near(run_world(variant), reference, 2e-5);
        variant.accumulation = 2;
        expect_near(run_world(variant), reference, 2e-5);
    }
}

TEST_P(EngineTest, EveryShardingGivesTheSameBits) {
    const Outcome reference = run_world({Sharding::kNone, ActivationCheckpointing::kNone, 1, GetParam()});
    for (const Sharding sharding : {Sharding::kShardOptimizer, Sharding::kShardGradOp, Sharding::kFullShard}) {
        const Outcome outcome = run_world({sharding, ActivationCheckpointing::kNone, 1, GetParam()});
        expect_same_bits(outcome, reference);
    }
}

// With 4 ranks these are 1, 2 and 4 copies; with 2 ranks 1 and 2.
TEST_P(EngineTest, HybridShardingGivesTheSameBits) {
    const Outcome reference = run_world({Sharding::kFullShard, ActivationCheckpointing::kNone, 1, GetParam()});
    const Outcome alone = run_alone(GetParam());
    for (const Sharding sharding : {Sharding::kHybridShard, Sharding::kHybridShardZero2}) {
        for (int unit = 1; unit <= world->size(); unit *= 2) {
            SCOPED_TRACE(unit);
            const Outcome outcome = run_world({sharding, ActivationCheckpointing::kNone, 1, GetParam(), unit});
            expect_same_bits(outcome, reference);
            expect_near(run_world({sharding, ActivationCheckpointing::kFull, 2, GetParam(), unit}), alone, 2e-5);
        }
    }
}

// The ranks that have the same part of the model train it as if there were no others.
TEST_P(EngineTest, RanksExchangeWithinTheirPartOfTheMeshAlone) {
    if (world->size() % 2 != 0) return;  // no ranks to have another part
    const auto half = world->split(world->rank() % 2, world->rank());
    Variant variant;
    variant.tied = GetParam();
    for (const Sharding sharding : {Sharding::kNone, Sharding::kFullShard, Sharding::kHybridShard}) {
        variant.sharding = sharding;
        variant.shard_group = is_hybrid(sharding) ? std::max(1, world->size() / 4) : 0;
        variant.tensor = 1;
        const Outcome alone = run_on(*half, variant);
        variant.tensor = 2;
        const Outcome outcome = run_world(variant);
        EXPECT_EQ(outcome.losses, alone.losses);
        EXPECT_EQ(outcome.eval_loss, alone.eval_loss);
    }
}

// Scratch for all that travels of none of the units, so that each goes in several pieces.
TEST(ReduceInPiecesTest, GradientsThatTravelInPiecesHaveTheSameBits) {
    for (const Sharding sharding : {Sharding::kNone, Sharding::kFullShard, Sharding::kHybridShard}) {
        for (const tensor::DType reduced : {tensor::DType::kF32, tensor::DType::kBF16}) {
            for (const std::uint64_t far : {0U, 5U}) {
                if (far != 0 && sharding != Sharding::kFullShard) continue;
                SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << " far " << far);
                Variant variant{sharding, ActivationCheckpointing::kNone, 2, true};
                variant.shard_group = is_hybrid(sharding) ? std::max(1, world->size() / 2) : 0;
                variant.formats.reduced = reduced;
                variant.far = far;
                const Outcome reference = run_world(variant);
                variant.reduce_scratch = 1024;
                const Outcome outcome = run_world(variant);
                EXPECT_EQ(outcome.losses, reference.losses);
                EXPECT_EQ(outcome.weights, reference.weights);
            }
        }
    }
}

TEST_P(EngineTest, RecomputationChangesNoBit) {
    for (const Sharding sharding : {Sharding::kNone, Sharding::kFullShard}) {
        const Outcome kept = run_world({sharding, ActivationCheckpointing::kNone, 2, GetParam()});
        for (const ActivationCheckpointing checkpointing :
             {ActivationCheckpointing::kFeedForward, ActivationCheckpointing::kSelective,
              ActivationCheckpointing::kAllButAttention, ActivationCheckpointing::kFull}) {
            for (const std::int64_t layers : {0, 2}) {  // of three
                SCOPED_TRACE(testing::Message() << run_settings::to_string(checkpointing) << " " << layers);
                Variant variant{sharding, checkpointing, 2, GetParam()};
                variant.checkpoint_layers = layers;
                const Outcome again = run_world(variant);
                EXPECT_EQ(kept.losses, again.losses);
                EXPECT_EQ(kept.weights, again.weights);
            }
        }
    }
}

// 12 rows over 1, 2, 3 or 4 ranks: every loss and weight is that of one rank without sharding, bit for bit.
TEST_P(EngineTest, WithAFixedTreeOverRowsRanksAndShardingsChangeNoBit) {
    Variant variant;
    variant.tied = GetParam();
    variant.fixed_tree_sequences = 12;
    const auto self = comm::make_self();
    const Outcome reference = run_on(*self, variant);
    for (const Sharding sharding : kShardings) {
        for (const ActivationCheckpointing checkpointing :
             {ActivationCheckpointing::kNone, ActivationCheckpointing::kAllButAttention,
              ActivationCheckpointing::kFull}) {
            SCOPED_TRACE(static_cast<int>(sharding));
            variant.sharding = sharding;
            variant.activation_checkpointing = checkpointing;
            variant.shard_group = world->size() == 4 ? 2 : world->size();
            const Outcome outcome = run_world(variant);
            EXPECT_EQ(outcome.losses, reference.losses);
            if (world->rank() == 0) {
                EXPECT_EQ(outcome.weights, reference.weights);
            }
        }
    }
}

// Each matrix is orthogonalised whole, by one rank.
TEST_P(EngineTest, MuonWithAFixedTreeOverRowsGivesTheSameBitsInEverySharding) {
    Variant variant;
    variant.tied = GetParam();
    variant.fixed_tree_sequences = 12;
    const auto self = comm::make_self();
    const Outcome adamw = run_on(*self, variant);
    variant.optimizer = optim::OptimizerKind::kMuon;
    const Outcome reference = run_on(*self, variant);
    EXPECT_NE(reference.losses, adamw.losses);
    EXPECT_LT(reference.losses.back(), reference.losses.front());
    for (const Sharding sharding : kShardings) {
        for (const std::uint64_t far : {0U, 3U}) {
            SCOPED_TRACE(testing::Message() << run_settings::to_string(sharding) << " far " << far);
            variant.sharding = sharding;
            variant.far = far;
            variant.shard_group = world->size() == 4 ? 2 : world->size();
            const Outcome outcome = run_world(variant);
            EXPECT_EQ(outcome.losses, reference.losses);
            if (world->rank() == 0) {
                EXPECT_EQ(outcome.weights, reference.weights);
            }
        }
    }
}

TEST_P(EngineTest, EveryFormatGivesTheSameBitsInEverySharding) {
    using kernels::Formats;
    using tensor::DType;
    const Outcome wide = run_world({Sharding::kNone, ActivationCheckpointing::kNone, 1, GetParam()});
    constexpr DType kBF16 = DType::kBF16, kF16 = DType::kF16;
    for (const Formats& formats :
         {Formats{.weights = kBF16}, Formats{.weights = kF16, .moments = kBF16},
          Formats{.weights = kBF16, .activations = kBF16, .residual = kBF16}, Formats{.activations = kBF16},
          Formats{.weights = kBF16, .activations = kBF16, .residual = kBF16, .masters = {}, .moments = kBF16},
          Formats{.weights = kF16, .activations = kF16, .residual = kF16}}) {
        Variant variant;
        variant.tied = GetParam();
        variant.formats = formats;
        const Outcome reference = run_world(variant);
        expect_same_way(reference, wide, GetParam(), 0.15);
        EXPECT_NE(reference.losses, wide.losses);
        for (const Sharding sharding : {Sharding::kShardOptimizer, Sharding::kShardGradOp, Sharding::kFullShard}) {
            variant.sharding = sharding;
            variant.activation_checkpointing = ActivationCheckpointing::kFull;
            const Outcome outcome = run_world(variant);
            expect_same_bits(outcome, reference);
        }
    }
}

// Each rank's gradients are rounded once, whatever is sharded; one rank rounds nothing.
TEST_P(EngineTest, GradientsThatTravelInBf16GiveTheSameBitsInEverySharding) {
    Variant variant;
    variant.tied = GetParam();
    const Outcome wide = run_world(variant);
    variant.formats.reduced = tensor::DType::kBF16;
    const Outcome reference = run_world(variant);
    expect_same_way(reference, wide, GetParam(), 0.07);
    EXPECT_EQ(reference.losses == wide.losses, world->size() == 1);
    // The same where a block leaves them so, of units that it writes once: a tied vocabulary has a buffer of its own.
    if (GetParam() && world->size() > 1) variant.formats.gradients = tensor::DType::kBF16;
    for (const Sharding sharding : {Sharding::kShardOptimizer, Sharding::kShardGradOp, Sharding::kFullShard}) {
        variant.sharding = sharding;
        for (const std::uint64_t far : {0U, 3U}) {
            variant.far = far;
            const Outcome outcome = run_world(variant);
            EXPECT_EQ(outcome.losses, reference.losses);
            EXPECT_EQ(outcome.weights, reference.weights);
        }
    }
    variant.sharding = Sharding::kHybridShard;
    variant.shard_group = std::min(2, world->size());
    expect_same_way(run_world(variant), wide, GetParam(), 0.07);
}

TEST_P(EngineTest, AnOffloadedOptimizerGivesTheSameBitsInEveryShardingAndStorage) {
    using tensor::DType;
    for (const Sharding sharding : kShardings) {
        for (const DType storage : {DType::kF32, DType::kBF16, DType::kF16}) {
            for (const optim::OptimizerKind optimizer : {optim::OptimizerKind::kAdamW, optim::OptimizerKind::kSgd}) {
                SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << tensor::size_bytes(storage));
                Variant variant{sharding,   ActivationCheckpointing::kNone, 1,
                                GetParam(), std::min(2, world->size()),     {.weights = storage}};
                variant.formats.moments = storage == DType::kF16 ? DType::kBF16 : DType::kF32;
                variant.optimizer = optimizer;
                const Outcome kept = run_world(variant);
                variant.offload_optimizer = Offload::kNvme;
                const Outcome offloaded = run_world(variant);
                EXPECT_EQ(offloaded.losses, kept.losses);
                EXPECT_EQ(offloaded.weights, kept.weights);
            }
        }
    }
}

// Flips a bit of this process' offloaded state, whose file has no name any more.
void damage_offloaded_state() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code error;
        const auto target = std::filesystem::read_symlink(entry.path(), error).string();
        if (target.find("atoll-optimizer.rank") == std::string::npos) continue;
        const UniqueFd file(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
        char byte = 0;
        ASSERT_EQ(::pread(file.get(), &byte, 1, 5), 1);
        byte = static_cast<char>(byte ^ 1);
        ASSERT_EQ(::pwrite(file.get(), &byte, 1, 5), 1);
        return;
    }
    ADD_FAILURE() << "there is no file of an offloaded optimizer";
}

TEST(SaveStateTest, WhatOneRankCannotReadLeavesTheLastStateOfAll) {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "state.safetensors";
    ASSERT_TRUE(write_file_atomic(file, "the last state").ok());
    Variant variant;
    variant.sharding = Sharding::kFullShard;
    variant.offload_optimizer = Offload::kNvme;
    parallel::Run run(*world, variant);
    const bool last = world->rank() == world->size() - 1;
    if (last) damage_offloaded_state();
    const Status saved = run.save(file);
    ASSERT_FALSE(saved.ok());
    if (last) {
        EXPECT_NE(saved.error().message.find("atoll-optimizer.rank"), std::string::npos) << saved.error().message;
    }
    EXPECT_EQ(read_file(file).value(), "the last state");
}

// A directory that all ranks see.
std::filesystem::path shared_path(const TemporaryDirectory& of_rank0) {
    std::string path = of_rank0.path().string();
    path.resize(4096);
    world->broadcast(std::as_writable_bytes(std::span(path)), 0);
    return path.c_str();  // without the zeros
}

TEST(SaveStateTest, WeightsInTheHostsMemoryAreSavedAndLoadedAsTheDevicesAre) {
    const TemporaryDirectory directory;
    const std::filesystem::path base = shared_path(directory);
    for (const auto& formats : {kernels::Formats{}, kernels::Formats{.weights = tensor::DType::kBF16}}) {
        const Variant kept{.sharding = Sharding::kFullShard, .formats = formats, .far = 1};
        Variant offloaded = kept;
        offloaded.offload_params = offloaded.offload_optimizer = Offload::kCpu;
        const auto after_a_step = [&](const Variant& saved, const Variant& loaded) {
            const auto file = base / "state.safetensors";
            parallel::Run before(*world, saved), after(*world, loaded);
            before.begin_step(1);
            EXPECT_TRUE(before.save(file).ok());
            EXPECT_TRUE(after.load(file).ok());
            return after.run();
        };
        const Outcome reference = after_a_step(kept, kept);
        EXPECT_NE(reference.losses, run_world(kept).losses);
        for (const auto& [saved, loaded] : {std::pair(kept, offloaded), std::pair(offloaded, kept)}) {
            const Outcome outcome = after_a_step(saved, loaded);
            EXPECT_EQ(outcome.losses, reference.losses);
            EXPECT_EQ(outcome.weights, reference.weights);
        }
    }
}

// As where one machine keeps what it read of a file that another has replaced.
TEST(SaveStateTest, AnotherStateThanThatOfRank0IsNamed) {
    if (world->size() == 1) return;  // there are no others
    const TemporaryDirectory directory;
    const std::filesystem::path base = shared_path(directory);
    parallel::Run run(*world, {});
    for (const char* name : {"older", "newer"}) {
        if (world->rank() == 0) std::filesystem::create_directory(base / name);
        ASSERT_TRUE(world->agree({}).ok());
        ASSERT_TRUE(run.save(base / name / "state.safetensors").ok());
    }
    const bool last = world->rank() == world->size() - 1;
    const auto refused = run.load(base / (last ? "older" : "newer") / "state.safetensors");
    ASSERT_FALSE(refused.ok());
    if (last) {
        EXPECT_NE(refused.error().message.find("state"), std::string::npos) << refused.error().message;
    }
    const auto unseen = run.load(base / (last ? "none" : "newer") / "state.safetensors");
    ASSERT_FALSE(unseen.ok());
    if (last) {
        EXPECT_NE((unseen.error().message + unseen.error().field).find("state.safetensors"), std::string::npos)
            << unseen.error().message;
    }
    ASSERT_TRUE(run.load(base / "newer" / "state.safetensors").ok());
}

TEST_P(EngineTest, WithoutItTheNumberOfRanksChangesBits) {
    const Outcome outcome = run_world({Sharding::kNone, ActivationCheckpointing::kNone, 1, GetParam()});
    EXPECT_EQ(outcome.losses == run_alone(GetParam()).losses, world->size() == 1);
}

INSTANTIATE_TEST_SUITE_P(TiedAndNot, EngineTest, testing::Bool());

}  // namespace
}  // namespace atl::parallel

int main(int argc, char** argv) {
    return atl::comm::run_tests(argc, argv, atl::parallel::world);
}
