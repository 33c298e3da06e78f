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

struct Compared {
    Variant variant;
    double tolerance;
};

// Of what a Llama's training does: sharded, with gradients from two micro-steps, moments on a disk, in fp32 and bf16.
std::vector<Compared> compared() {
    std::vector<Compared> runs;
    for (const Sharding sharding : {Sharding::kNone, Sharding::kFullShard})
        runs.push_back({{sharding, ActivationCheckpointing::kSelective, 2, true}, 2e-5});
    Variant bf16{Sharding::kShardGradOp, ActivationCheckpointing::kNone, 1, false};
    bf16.formats.weights = bf16.formats.activations = bf16.formats.residual = tensor::DType::kBF16;
    bf16.formats.reduced = bf16.formats.moments = tensor::DType::kBF16;
    bf16.offload_optimizer = Offload::kNvme;
    runs.push_back({bf16, 5e-2});
    return runs;
}

class GpuDeviceTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (kernels::open_tested_gpu(1) == nullptr) GTEST_SKIP() << "no GPU here";
    }
};

TEST_F(GpuDeviceTest, TrainsAsTheCpuDoesAndTheSameBitsInEveryOrder) {
    for (const auto& [variant, tolerance] : compared()) {
        SCOPED_TRACE(static_cast<int>(variant.sharding));
        const Outcome cpu = run_world(variant), gpu = run_on_gpu(variant, 1);
        EXPECT_LT(distance(gpu, cpu), tolerance);
        for (const std::uint64_t seed : {2U, 3U}) {
            const Outcome other = run_on_gpu(variant, seed);
            expect_same_bits(other, gpu);
        }
    }
}

// Its kernels update pinned memory where it lies.
TEST_F(GpuDeviceTest, WeightsAndMomentsInTheHostsMemoryGiveTheSameBits) {
    for (const auto& compare : compared()) {
        Variant variant = compare.variant;
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

double l2_distance(const std::vector<float>& one, const std::vector<float>& other) {
    double sum = 0;
    for (std::size_t i = 0; i < one.size(); ++i) sum += std::pow(static_cast<double>(one[i]) - other[i], 2);
    return std::sqrt(sum);
}

// Both round at the same points, so that only the order of sums tells them apart: less than bf16 does from fp32.
TEST_F(GpuDeviceTest, InBf16ItIsNearerToTheCpuThanFp32Is) {
    const Variant half = compared().back().variant;
    Variant wide = half;
    wide.formats = {};
    const Outcome cpu = run_world(half), gpu = run_on_gpu(half, 1), fp32 = run_world(wide);
    if (world->rank() != 0) return;
    EXPECT_LT(l2_distance(gpu.weights, cpu.weights), 0.5 * l2_distance(fp32.weights, cpu.weights));
}

// A control: SGD's steps are not near those of AdamW.
TEST_F(GpuDeviceTest, AnotherOptimizerIsFarOff) {
    Variant variant = compared().front().variant;
    const Outcome cpu = run_world(variant);
    variant.optimizer = optim::OptimizerKind::kSgd;
    const Outcome gpu = run_on_gpu(variant, 1);
    EXPECT_GT(distance(gpu, cpu), 1e-3);
}

#if defined(ATOLL_GPU_SHIM)

// How often a run's steps ask the device for memory.
std::int64_t allocations_of_steps(Variant variant) {
    variant.open_device = [] { return kernels::open_tested_gpu(1); };
    Run run(*world, variant);
    const std::int64_t before = kernels::gpu::shim::device_allocations();
    run.run();
    return kernels::gpu::shim::device_allocations() - before;
}

TEST(GpuMemoryTest, ARunTakesNoMemoryOfTheDeviceOnceItHasBegun) {
    for (const auto& compare : compared()) EXPECT_EQ(allocations_of_steps(compare.variant), 0);
    Variant converted = compared().front().variant;  // products of formats that the library does not take together
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
