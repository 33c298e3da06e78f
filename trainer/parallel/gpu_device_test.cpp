// Steps of a tiny Llama on the GPU's backend against the CPU's: on the host by the shim of its runtime, or on a GPU in
// a build for one; ranks as in engine_test.cpp.

#include <gtest/gtest.h>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/worse.h"
#include "trainer/parallel/testing/tiny_run.h"

namespace atl::parallel {
namespace {

Outcome run_on_gpu(Variant variant, std::uint64_t seed) {
    variant.open_device = [seed] { return kernels::open_tested_gpu(seed); };
    return run_world(variant);
}

// The largest difference of two runs' losses or weights, and that of NaN.
double distance(const Outcome& one, const Outcome& other) {
    double worst = std::abs(one.eval_loss / other.eval_loss - 1);
    for (std::size_t i = 0; i < one.losses.size(); ++i)
        worst = kernels::worse(worst, std::abs(one.losses[i] - other.losses[i]));
    for (std::size_t i = 0; i < one.weights.size(); ++i)
        worst = kernels::worse(worst, std::abs(static_cast<double>(one.weights[i]) - other.weights[i]));
    return worst;
}
constexpr double kFp32Tolerance = 2e-5;  // of it

// What a Llama's training does: sharded, with gradients from two micro-steps.
std::vector<Variant> in_fp32() {
    std::vector<Variant> variants;
    for (const Sharding sharding : {Sharding::kNone, Sharding::kFullShard})
        variants.push_back({sharding, ActivationCheckpointing::kSelective, 2, true});
    return variants;
}

// With moments on a disk.
Variant in_bf16() {
    Variant bf16{Sharding::kShardGradOp, ActivationCheckpointing::kNone, 1, false};
    bf16.formats.weights = bf16.formats.activations = bf16.formats.residual = tensor::DType::kBF16;
    bf16.formats.reduced = bf16.formats.moments = tensor::DType::kBF16;
    bf16.offload_optimizer = Offload::kNvme;
    return bf16;
}

std::vector<Variant> variants() {
    std::vector<Variant> all = in_fp32();
    all.push_back(in_bf16());
    return all;
}

// How far a run in bf16 is from the CPU's, beside how far fp32 is from that: the weights (on rank 0) or, where these
// are further off, the losses. NaN if one is.
double distance_beside_fp32(const Outcome& run, const Outcome& cpu) {
    Variant wide = in_bf16();
    wide.formats = {};
    const Outcome fp32 = run_world(wide);
    const double losses = l2_distance(run.losses, cpu.losses) / l2_distance(fp32.losses, cpu.losses);
    if (world->rank() != 0) return losses;
    return kernels::worse(losses, l2_distance(run.weights, cpu.weights) / l2_distance(fp32.weights, cpu.weights));
}

class GpuDeviceTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (kernels::open_tested_gpu(1) == nullptr) GTEST_SKIP() << "no GPU here";
    }
};

TEST_F(GpuDeviceTest, TrainsInFp32AsTheCpuDoes) {
    for (const Variant& variant : in_fp32()) {
        SCOPED_TRACE(static_cast<int>(variant.sharding));
        EXPECT_LT(distance(run_on_gpu(variant, 1), run_world(variant)), kFp32Tolerance);
    }
}

// The GPU rounds attention's probabilities and the gradients of its scores as well, which are multiplied, and adds up
// in another order: both take it less far than bf16 is from fp32.
TEST_F(GpuDeviceTest, InBf16ItIsNearerToTheCpuThanFp32Is) {
    const Outcome cpu = run_world(in_bf16());
    EXPECT_LT(distance_beside_fp32(run_on_gpu(in_bf16(), 1), cpu), 1);
}

// Controls: SGD's steps are not near those of AdamW.
TEST_F(GpuDeviceTest, AnotherOptimizerIsFarOff) {
    Variant variant = in_fp32().front();
    const Outcome cpu = run_world(variant);
    variant.optimizer = optim::OptimizerKind::kSgd;
    EXPECT_GT(distance(run_on_gpu(variant, 1), cpu), 50 * kFp32Tolerance);
}

TEST_F(GpuDeviceTest, InBf16AnotherOptimizerIsFartherOffThanFp32) {
    Variant variant = in_bf16();
    const Outcome cpu = run_world(variant);
    variant.optimizer = optim::OptimizerKind::kSgd;
    EXPECT_GT(distance_beside_fp32(run_on_gpu(variant, 1), cpu), 1);
}

TEST_F(GpuDeviceTest, EveryOrderGivesTheSameBits) {
    for (const Variant& variant : variants()) {
        SCOPED_TRACE(static_cast<int>(variant.sharding));
        const Outcome gpu = run_on_gpu(variant, 1);
        for (const std::uint64_t seed : {2U, 3U}) {
            const Outcome other = run_on_gpu(variant, seed);
            expect_same_bits(other, gpu);
        }
    }
}

// Its kernels update pinned memory where it lies.
TEST_F(GpuDeviceTest, WeightsAndMomentsInTheHostsMemoryGiveTheSameBits) {
    for (Variant variant : variants()) {
        SCOPED_TRACE(static_cast<int>(variant.sharding));
        variant.offload_optimizer = Offload::kNone;
        const Outcome kept = run_on_gpu(variant, 1);
        variant.offload_params = variant.offload_optimizer = Offload::kCpu;
        for (const std::uint64_t seed : {1U, 2U, 3U}) {
            const Outcome offloaded = run_on_gpu(variant, seed);
            expect_same_bits(offloaded, kept);
        }
    }
}

#if defined(ATOLL_GPU_SHIM)

// Graphs: launches of a run's regions, and how many there are of them.
struct Graphs {
    std::int64_t made = kernels::gpu::shim::graphs_made(), launches = kernels::gpu::shim::graph_launches();
};

TEST(GpuGraphTest, ARunAsksForItsBlocksByGraphsAndForTheSameBits) {
    for (Variant variant : variants()) {
        SCOPED_TRACE(static_cast<int>(variant.sharding));
        variant.open_device = [] { return kernels::gpu::GpuBackend::open(0, {.graphs = false}).value(); };
        const Graphs at_first;
        const Outcome without = run_world(variant);
        const Graphs before;
        EXPECT_EQ(before.made, at_first.made);
        const Outcome with = run_on_gpu(variant, 1);
        const Graphs after;
        expect_same_bits(with, without);
        EXPECT_GT(after.made, before.made);
        EXPECT_GE(after.launches, after.made);
    }
}

// Each pass of each block is one from the second step on; another engine's are others, though its buffers may lie where
// those lay.
TEST(GpuGraphTest, EachPassOfEachBlockIsAGraph) {
    const auto self = comm::make_self();
    Variant variant;
    variant.open_device = [] { return kernels::open_tested_gpu(1); };
    for (int engine = 0; engine < 2; ++engine) {
        parallel::Run run(*self, variant);
        const Graphs before;
        run.begin_step(1);
        for (int step = 2; step <= 4; ++step) {
            run.begin_step(step);
            EXPECT_GT(run.read_loss(), 0);
        }
        const Graphs after;
        constexpr int kPasses = 4 + 5;  // forward of all but the head, and backward of all
        EXPECT_EQ(after.made - before.made, kPasses);
        EXPECT_EQ(after.launches - before.launches, 3 * kPasses);
        EXPECT_GT(run.read_loss(), 0);
    }
}

// How often a run's steps ask the device for memory.
std::int64_t allocations_of_steps(Variant variant) {
    variant.open_device = [] { return kernels::open_tested_gpu(1); };
    Run run(*world, variant);
    const std::int64_t before = kernels::gpu::shim::device_allocations();
    run.run();
    return kernels::gpu::shim::device_allocations() - before;
}

TEST(GpuMemoryTest, ARunTakesNoMemoryOfTheDeviceOnceItHasBegun) {
    for (const Variant& variant : variants()) EXPECT_EQ(allocations_of_steps(variant), 0);
    Variant converted = in_fp32().front();  // products of formats that the library does not take together
    converted.formats.weights = tensor::DType::kBF16;
    EXPECT_EQ(allocations_of_steps(converted), 0);
}

TEST(GpuMemoryTest, ThePlanCountsTheDevicesMemoryToTheByte) {
    const std::int64_t before = kernels::gpu::shim::device_bytes();
    const auto gpu = kernels::open_tested_gpu(1);
    const model::Model model = tiny_model(false);
    const optim::Optimizer optimizer;
    RunMemoryOptions options;
    options.engine.largest = {1, kLength};
    options.optimizer = &optimizer;
    const plan::MemoryPlan plan = RunMemory::measure(*gpu, model, options);
    const auto memory = RunMemory::allocate(*gpu, model, options);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(kernels::gpu::shim::device_bytes() - before, plan.device_bytes + plan.backend_bytes);
    EXPECT_EQ(plan.total_bytes(), plan.device_bytes + plan.backend_bytes + plan.pinned_bytes + plan.program_bytes);
}

#endif

}  // namespace
}  // namespace atl::parallel
