// The engine on a device as far from the host as the backend's contract lets one be; ranks as in engine_test.cpp.

#include <gtest/gtest.h>

#include "trainer/parallel/gathered_weight_source.h"
#include "trainer/parallel/testing/tiny_run.h"

namespace atl::parallel {
namespace {

// Memory that the host cannot touch, streams in any order that their events allow.
TEST(FarDeviceTest, TrainsTheSameBits) {
    for (const Sharding sharding : kShardings) {
        Variant by_rows{sharding, ActivationCheckpointing::kSelective, 2, true, std::min(2, world->size())};
        Variant offloaded = by_rows;
        by_rows.fixed_tree_sequences = 12;
        offloaded.formats.weights = tensor::DType::kBF16;
        offloaded.offload_optimizer = Offload::kNvme;
        for (Variant variant : {by_rows, offloaded}) {
            const Outcome at_once = run_world(variant);
            for (const std::uint64_t seed : {1U, 2U, 3U}) {
                SCOPED_TRACE(testing::Message() << static_cast<int>(sharding)
                                                << static_cast<int>(variant.offload_optimizer) << " seed " << seed);
                variant.far = seed;
                const Outcome far = run_world(variant);
                expect_same_bits(far, at_once);
            }
        }
    }
}

// Weights are gathered from pinned memory or copied out of it, and updated there.
TEST(FarDeviceTest, WeightsInTheHostsMemoryTrainTheSameBits) {
    for (const Sharding sharding : kShardings) {
        Variant wide{sharding, ActivationCheckpointing::kSelective, 2, true, std::min(2, world->size())};
        Variant half = wide;
        half.formats.weights = tensor::DType::kBF16;
        for (Variant variant : {wide, half}) {
            const Outcome kept = run_world(variant);
            variant.offload_params = Offload::kCpu;
            for (const Offload optimizer : {Offload::kNone, Offload::kCpu, Offload::kNvme}) {
                variant.offload_optimizer = optimizer;
                for (const std::uint64_t seed : {0U, 1U, 2U}) {
                    SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << " " << to_string(optimizer)
                                                    << " seed " << seed << " of no device for 0");
                    variant.far = seed;
                    const Outcome offloaded = run_world(variant);
                    expect_same_bits(offloaded, kept);
                }
            }
        }
    }
}

TEST(FarDeviceTest, AFrozenModelInTheHostsMemoryTrainsTheSameAdapters) {
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kFullShard}) {
        Variant variant{.sharding = sharding, .formats = {.weights = tensor::DType::kBF16}, .lora_rank = 2};
        const Outcome kept = run_world(variant);
        EXPECT_NE(kept.losses[0], kept.losses[2]);
        variant.offload_params = Offload::kCpu;
        for (const std::uint64_t seed : {1U, 2U}) {
            SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << " seed " << seed);
            variant.far = seed;
            const Outcome offloaded = run_world(variant);
            expect_same_bits(offloaded, kept);
        }
    }
}

// For the scalars of the step before; neither its rows nor its own loss, norm or update make it wait.
TEST(FarDeviceTest, AStepOfOneRankMakesTheHostWaitOnceAndNotForItself) {
    const auto self = comm::make_self();
    Variant variant;
    variant.far = 1;
    for (const auto checkpointing : {ActivationCheckpointing::kNone, ActivationCheckpointing::kFeedForward,
                                     ActivationCheckpointing::kAllButAttention, ActivationCheckpointing::kFull}) {
        for (const std::int64_t accumulation : {1, 4}) {
            for (const Offload offload : {Offload::kNone, Offload::kCpu}) {
                variant.activation_checkpointing = checkpointing;
                variant.accumulation = accumulation;
                variant.offload_params = variant.offload_optimizer = offload;
                parallel::Run run(*self, variant);
                const int before = run.far_device().host_waits();
                run.begin_step(1);
                for (int step = 2; step <= 8; ++step) {
                    run.begin_step(step);
                    EXPECT_EQ(run.far_device().host_waits() - before, step - 2) << "before it reads step " << step - 1;
                    EXPECT_GT(run.read_loss(), 0);
                }
                EXPECT_EQ(run.far_device().host_waits() - before, 7);
            }
        }
    }
}

// Each pass of each block, once it was seen with the same buffers.
// Two steps are asked for before one is read, and the last is read together with the one before it.
TEST(FarDeviceTest, AStepIsTimedByTheDeviceFromTheEndOfTheOneBefore) {
    Variant variant{Sharding::kFullShard};
    variant.far = 7;
    parallel::Run run(*world, variant);
    std::vector<TrainingStep::Begun> steps;
    const auto read = [&] {
        run.read_loss();
        steps.push_back(run.read_step());
    };
    run.begin_step(1);
    for (int number = 2; number <= 5; ++number) {
        run.begin_step(number);
        read();
    }
    read();
    double shortest = 1e30;
    for (const auto& [targets, began, ended] : steps) {
        ASSERT_TRUE(began->has_happened() && ended->has_happened());
        if (&ended != &steps.back().ended) shortest = std::min(shortest, ended->seconds_since(*began));
    }
    for (std::size_t i = 1; i < steps.size(); ++i) EXPECT_GE(steps[i].began->seconds_since(*steps[i - 1].ended), 0);
    EXPECT_GT(shortest, 0);
    EXPECT_GT(steps.back().ended->seconds_since(*steps.back().began), shortest / 10) << "it computes as much as others";
}

TEST(FarDeviceTest, TheBlocksOfLaterStepsAreReplayed) {
    const auto self = comm::make_self();
    Variant variant;
    variant.far = 1;
    parallel::Run run(*self, variant);
    run.begin_step(1);
    EXPECT_EQ(run.far_device().replays(), 0);
    run.begin_step(2);
    EXPECT_EQ(run.far_device().replays(), 4 + 5) << "forward of all but the head, and backward of all";
}

TEST(FarDeviceTest, BlocksOfRowsWithDocumentsAreNotReplayedForRowsWithout) {
    Variant variant{Sharding::kFullShard, ActivationCheckpointing::kAllButAttention};
    const Outcome whole = run_world(variant);
    variant.packed = true;
    const Outcome at_once = run_world(variant);
    EXPECT_NE(at_once.losses[0], whole.losses[0]);
    variant.far = 3;
    const Outcome far = run_world(variant);
    expect_same_bits(far, at_once);
}

struct Allocated {
    int times = 0;
    std::int64_t device_bytes = 0, pinned_bytes = 0;
};

class CountingDevice : public FarBackend {
  public:
    explicit CountingDevice(Allocated& allocated)
        : FarBackend(kernels::make_cpu_backend(1).value()), allocated_(allocated) {}
    Result<tensor::Memory> allocate(kernels::Space space, std::int64_t bytes) override {
        ++allocated_.times;
        (space == kernels::Space::kPinned ? allocated_.pinned_bytes : allocated_.device_bytes) += bytes;
        return FarBackend::allocate(space, bytes);
    }

  private:
    Allocated& allocated_;
};

TEST(FarDeviceTest, ARunTakesWhatItsPlanSaysAndAllocatesNothingMore) {
    for (const Sharding sharding : kShardings) {
        const Variant plain{sharding, ActivationCheckpointing::kSelective, 2, true, std::min(2, world->size())};
        Variant by_rows = plain, in_pieces = plain, offloaded = plain;
        by_rows.fixed_tree_sequences = 12;
        in_pieces.reduce_scratch = 1024;
        in_pieces.formats.reduced = tensor::DType::kBF16;
        offloaded.offload_params = Offload::kCpu;
        offloaded.offload_optimizer = Offload::kNvme;
        for (Variant variant : {plain, by_rows, in_pieces, offloaded}) {
            SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << " " << variant.fixed_tree_sequences << " "
                                            << variant.reduce_scratch << " " << to_string(variant.offload_optimizer));
            Allocated allocated;
            variant.open_device = [&] { return std::make_unique<CountingDevice>(allocated); };
            parallel::Run run(*world, variant);
            EXPECT_EQ(allocated.device_bytes, run.plan().device_bytes);
            EXPECT_EQ(allocated.pinned_bytes, run.plan().pinned_bytes);
            const int times_at_start = allocated.times;
            run.run();
            EXPECT_EQ(allocated.times, times_at_start);
        }
    }
}

// A CPU that likes logits of so many tokens at a time.
class LossRows : public FarBackend {
  public:
    explicit LossRows(std::int64_t rows) : FarBackend(kernels::make_cpu_backend(1).value()), rows_(rows) {}
    std::int64_t loss_rows(std::int64_t) const override { return rows_; }

  private:
    std::int64_t rows_;
};

TEST(FarDeviceTest, TheLossComesInChunksOfTheDevicesChoice) {
    const model::Model model = tiny_model(false);
    const auto scratch = [&](std::int64_t rows) {
        return model.blocks.back()->workspace_bytes(LossRows(rows), {4, kLength}, true);
    };
    EXPECT_EQ(scratch(32) - scratch(16), 16 * kVocabulary * 4);
    EXPECT_EQ(scratch(1000), scratch(4 * kLength)) << "never more than the batch has";
    EXPECT_EQ(
        model.blocks.back()->workspace_bytes(FarBackend(kernels::make_cpu_backend(1).value()), {4, kLength}, true),
        scratch(4 * kLength));
}

// Of what follows two steps of a text, by weights that the ranks share.
std::vector<float> generated_logits(std::uint64_t far) {
    const model::Model model = tiny_model(true);
    const auto backend = make_backend(far);
    const ParallelLayout layout = parallel_layout(Sharding::kFullShard, world->rank(), world->size());
    const auto ranks = open_exchange_library(*backend)->make_group(*world);
    const auto weights = GatheredWeightSource::allocate(*backend, model, layout, *ranks).value();
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
