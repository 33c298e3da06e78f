// What a device of its own memory has room for, on the GPU's backend over the shim of its runtime.

#include "trainer/train/memory_check.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/safetensors/file.h"
#include "trainer/kernels/planned_gpu.h"
#include "trainer/kernels/testing/backends.h"

#if defined(ATOLL_GPU_SHIM)

namespace atl::train {
namespace {

using kernels::gpu::shim::device_allocations;
using kernels::gpu::shim::device_bytes;
using kernels::gpu::shim::set_device_memory;

constexpr std::int64_t kLength = 32;
constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 300,
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 4,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": false})";

class DeviceMemoryTest : public testing::Test {
  protected:
    DeviceMemoryTest() {
        const std::vector<safetensors::TensorInfo> tensors = {
            {"input_ids", safetensors::DType::kI32, {1, kLength}, 0, 0}};
        auto writer = safetensors::Writer::create(file_, tensors).value();
        const std::vector<std::int32_t> ids(kLength, 1);
        EXPECT_TRUE(writer.append(std::as_bytes(std::span(ids))).ok() && writer.finish().ok());
    }
    ~DeviceMemoryTest() override { set_device_memory(80'000'000'000); }

    PreparedRun make_run() const {
        PreparedRun run{
            .config = {}, .directory = {}, .data = {dataset::Dataset::open(file_).value(), 1}, .validation = {}};
        run.directory.model = model::make_model(model_config::parse_config(kConfig).value());
        run.batch = {.global = 8, .micro = 8, .accumulation = 1};
        return run;
    }
    std::int64_t need(const PreparedRun& run, plan::Settings settings) const {
        return measure_with(run, settings, *gpu_, 0, 1).bytes(false).device;
    }
    // So that a rank's share of what is free is this.
    void leave(std::int64_t bytes) const {
        set_device_memory(80'000'000'000);
        const std::int64_t spare = gpu_->device_memory()->free - device_share_bytes(*gpu_, 1);
        set_device_memory(device_bytes() + spare + bytes);
    }
    Status check(const PreparedRun& run) const { return check_fits(run, *gpu_, *comm_); }

    const TemporaryDirectory directory_;
    const std::filesystem::path file_ = directory_.path() / "rows.safetensors";
    const std::unique_ptr<comm::Comm> comm_ = comm::make_self();
    const std::unique_ptr<kernels::Backend> gpu_ = kernels::open_tested_gpu(1);
};

TEST_F(DeviceMemoryTest, ARunTakesAllThatIsThereAndNotAByteMore) {
    const PreparedRun run = make_run();
    const std::int64_t all = need(run, memory_settings(run));
    leave(all);
    EXPECT_TRUE(check(run).ok());
    leave(all - 1);
    const std::int64_t allocations = device_allocations();
    const Status refused = check(run);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(refused.error().message.find(" of its GPU's memory a rank and "), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("--activation-checkpointing feed-forward ("), std::string::npos)
        << refused.error().message;
    EXPECT_EQ(device_allocations(), allocations) << "nothing was tried";
}

TEST_F(DeviceMemoryTest, TheNearestThatFitsIsWhatFits) {
    PreparedRun run = make_run();
    plan::Settings smallest = memory_settings(run);
    smallest.batch_size = 1;
    smallest.grad_accum = 8;
    smallest.activation_checkpointing = run_settings::ActivationCheckpointing::kFull;
    leave(need(run, smallest) - 1);
    const std::string message = check(run).error().message;
    EXPECT_NE(message.find(" --offload-optimizer cpu ("), std::string::npos) << message;
    run.config.offload_optimizer = run_settings::Offload::kCpu;
    const auto nearest = plan::nearest_that_fits(memory_settings(make_run()), 1, false, [&](const auto& settings) {
        return need(run, settings) <= device_share_bytes(*gpu_, 1);
    });
    ASSERT_TRUE(nearest.has_value());
    EXPECT_NE(message.find(plan::to_flags(*nearest)), std::string::npos) << message;
    run.batch.micro = nearest->batch_size;
    run.batch.accumulation = nearest->grad_accum;
    run.config.activation_checkpointing = nearest->activation_checkpointing;
    EXPECT_TRUE(check(run).ok()) << check(run).error().message;
    EXPECT_TRUE(parallel::RunMemory::allocate(*gpu_, run.directory.model, run_memory_options(run, 0, 1)).ok());
}

TEST_F(DeviceMemoryTest, RanksThatShareAGpuHaveAPartOfItEach) {
    leave(1'000'000'000);
    EXPECT_EQ(device_share_bytes(*gpu_, 1), 1'000'000'000);
    EXPECT_LT(device_share_bytes(*gpu_, 2), 500'000'000);
    EXPECT_GT(device_share_bytes(*gpu_, 2), 400'000'000);
}

TEST_F(DeviceMemoryTest, WhatOnlyReadsTheModelIsToldFewerRows) {
    leave(300);
    const auto need_bytes = [](std::int64_t rows) { return plan::Bytes{.host = 1, .device = 100 * rows}; };
    EXPECT_TRUE(check_fits(*gpu_, 3, need_bytes, *comm_).ok());
    const Status refused = check_fits(*gpu_, 8, need_bytes, *comm_);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("--batch-size 2 ("), std::string::npos) << refused.error().message;
}

// The layout is the run's own; only what a GPU's backend says is said for it.
TEST_F(DeviceMemoryTest, APlanForAGpuThatIsNotHereIsThatOfTheGpusBackend) {
    const auto gpu = kernels::gpu::GpuBackend::open(0, {.deterministic = true}).value();
    const auto planned = kernels::make_planned_gpu(
        {.architecture = 90, .memory_bytes = 80'000'000'000, .driver_bytes = 0, .deterministic = true});
    const plan::Settings all = memory_settings(make_run());
    std::vector<plan::Settings> settings = plan::smaller_settings(all, 2, false);
    settings.push_back(all);
    for (const bool is_half : {false, true}) {
        PreparedRun run = make_run();
        if (is_half)
            run.directory.model.use_formats({.weights = tensor::DType::kBF16, .activations = tensor::DType::kBF16});
        for (const plan::Settings& one : settings) {
            const plan::MemoryPlan here = measure_with(run, one, *gpu, 0, 2),
                                   there = measure_with(run, one, *planned, 0, 2);
            EXPECT_EQ(there.categories, here.categories) << plan::to_flags(one);
            EXPECT_EQ(there.device_bytes, here.device_bytes) << plan::to_flags(one);
            EXPECT_EQ(there.pinned_bytes, here.pinned_bytes) << plan::to_flags(one);
            EXPECT_EQ(there.backend_bytes, here.backend_bytes);
        }
    }
}

TEST_F(DeviceMemoryTest, ADeviceThatHasTheHostsMemoryHasNoOther) {
    const auto cpu = kernels::make_cpu_backend(1).value();
    EXPECT_FALSE(cpu->device_memory().has_value());
    EXPECT_TRUE(check_fits(make_run(), *cpu, *comm_).ok());
}

}  // namespace
}  // namespace atl::train

#endif
