// What a GPU that is not here is said to take, against the GPU's backend itself over the shim of its runtime.

#include "trainer/kernels/planned_gpu.h"

#include <gtest/gtest.h>

#include "trainer/kernels/gpu/cudnn_workspace.h"
#include "trainer/kernels/testing/backends.h"

namespace atl::kernels {
namespace {

constexpr PlannedGpu kHopper = {
    .architecture = 90, .memory_bytes = 80'000'000'000, .driver_bytes = 500'000'000, .deterministic = true};

TEST(PlannedGpuTest, IsADeviceOfItsOwnMemory) {
    const auto planned = make_planned_gpu(kHopper);
    EXPECT_FALSE(planned->host_reaches_device());
    ASSERT_TRUE(planned->device_memory().has_value());
    EXPECT_EQ(planned->device_memory()->total, 80'000'000'000);
    EXPECT_EQ(planned->device_memory()->free, 79'500'000'000 - planned->own_bytes());
}

// Where cuDNN has a kernel that takes more than products do, that counts, and in no run that must not vary.
TEST(PlannedGpuTest, CountsCudnnsWorkspaceWhereItIsTheLarger) {
    PlannedGpu varying = kHopper;
    varying.deterministic = false;
    const auto products = make_planned_gpu(kHopper), either = make_planned_gpu(varying);
    const AttentionShape long_one{1, 8192, 32, 8, 128, tensor::DType::kBF16};
    const std::int64_t by_products = products->attention_workspace_bytes(long_one);
    EXPECT_GT(either->attention_workspace_bytes(long_one), by_products);
    // Of 1024 documents, each of whose places is 448 bytes of cuDNN's, with lists of where they begin and gradients.
    const auto cudnn = gpu::cudnn_workspace_bytes(90, {long_one, gpu::SdpaPass::kBackward, 1024});
    ASSERT_EQ(cudnn, 404'161'664);
    const std::int64_t lists = 4 * tensor::aligned(4 * 1025), gradients = 8192 * 6144 * 2;
    EXPECT_EQ(either->attention_workspace_bytes(long_one), tensor::aligned(*cudnn + 192) + lists + gradients);
    AttentionShape wide = long_one;
    wide.format = tensor::DType::kF32;
    EXPECT_EQ(either->attention_workspace_bytes(wide), products->attention_workspace_bytes(wide));
    varying.architecture = 80;
    const AttentionShape of_256{1, 4096, 8, 4, 256, tensor::DType::kBF16};
    EXPECT_EQ(make_planned_gpu(varying)->attention_workspace_bytes(of_256), products->attention_workspace_bytes(of_256))
        << "an A100's cuDNN has no backward pass for so many channels";
}

#if defined(ATOLL_GPU_SHIM)

std::vector<AttentionShape> shapes() {
    std::vector<AttentionShape> all;
    for (const tensor::DType format : {tensor::DType::kF32, tensor::DType::kBF16, tensor::DType::kF16}) {
        for (const std::int64_t length : {1, 37, 1000, 8192}) {
            all.push_back({2, length, 32, 8, 128, format});
            all.push_back({1, length, 12, 12, 60, format});
        }
    }
    return all;
}

TEST(PlannedGpuTest, TakesWhatTheGpusBackendTakes) {
    const auto planned = make_planned_gpu(kHopper);
    const auto gpu = gpu::GpuBackend::open(0, {.deterministic = true}).value();
    EXPECT_EQ(planned->own_bytes(), gpu->own_bytes());
    EXPECT_EQ(planned->multiplies_quantized(), gpu->multiplies_quantized());
    for (const std::int64_t vocabulary : {1000, 32'000, 128'256, 262'144})
        EXPECT_EQ(planned->loss_rows(vocabulary), gpu->loss_rows(vocabulary));
    for (const AttentionShape& shape : shapes()) {
        EXPECT_EQ(planned->attention_kept_bytes(shape), gpu->attention_kept_bytes(shape));
        EXPECT_EQ(planned->attention_workspace_bytes(shape), gpu->attention_workspace_bytes(shape));
        EXPECT_EQ(planned->attention_cached_workspace_bytes(shape, 5000),
                  gpu->attention_cached_workspace_bytes(shape, 5000));
    }
}

#endif

}  // namespace
}  // namespace atl::kernels
