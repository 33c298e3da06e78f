#include "shared/training_memory/least_memory.h"

#include <gtest/gtest.h>

namespace atl::training_memory {
namespace {

using run_settings::RunConfig;

model_config::ModelConfig tiny() {
    return model_config::parse_config(
               R"({"model_type": "llama", "vocab_size": 320, "hidden_size": 8, "intermediate_size": 12,
                   "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
                   "tie_word_embeddings": true})")
        .value();
}

constexpr std::int64_t kLayer = 8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 8 * 12 + 2 * 8;
constexpr std::int64_t kParameters = 320 * 8 + 3 * kLayer + 8;

// trainer/parallel/least_memory_test.cpp compares with what the trainer lays out.
TEST(LeastMemoryTest, CountsWhatEachRankKeeps) {
    EXPECT_EQ(parameter_count(tiny()), kParameters);
    RunConfig settings;
    settings.batch_size = 2;
    const LeastMemory all = least_memory(tiny(), settings, 1, 1, 16).value();
    EXPECT_EQ(all.weights, 4 * kParameters);
    EXPECT_EQ(all.gradients, 4 * kParameters);
    EXPECT_EQ(all.masters, 0) << "of fp32 weights";
    EXPECT_EQ(all.moments, 8 * kParameters);
    EXPECT_EQ(all.activations, 2 * 16 * 3 * 4 * (2 * 8 + (4 + 2) * 4 + 2 * 12));
    settings.precision = run_settings::Precision::kBf16;
    settings.sharding = run_settings::Sharding::kFullShard;
    settings.activation_checkpointing = run_settings::ActivationCheckpointing::kFull;
    const LeastMemory sharded = least_memory(tiny(), settings, 4, 2, 16).value();
    EXPECT_EQ(sharded.weights, kParameters / 4 * 2);
    EXPECT_EQ(sharded.masters, kParameters / 4 * 4);
    EXPECT_EQ(sharded.moments, kParameters / 4 * 8);
    EXPECT_EQ(sharded.activations, 2 * 16 * 3 * 4 * 8);
    settings.offload_optimizer = run_settings::Offload::kNvme;
    const LeastMemory offloaded = least_memory(tiny(), settings, 4, 2, 16).value();
    EXPECT_EQ(offloaded.masters + offloaded.moments, 0);
    settings.sharding = run_settings::Sharding::kHybridShard;
    EXPECT_EQ(least_memory(tiny(), settings, 4, 2, 16)->weights, kParameters / 2 * 2) << "in groups of two";
}

TEST(LeastMemoryTest, WhatIsLeftToTheHostIsNotOnAGpu) {
    RunConfig settings;
    settings.precision = run_settings::Precision::kBf16;
    const LeastMemory least = least_memory(tiny(), settings, 1, 1, 16).value();
    EXPECT_EQ(device_bytes(least, settings), least.total());
    settings.offload_optimizer = run_settings::Offload::kCpu;
    EXPECT_EQ(device_bytes(least, settings), least.weights + least.gradients + least.activations);
    settings.offload_params = run_settings::Offload::kCpu;
    EXPECT_EQ(device_bytes(least, settings), least.gradients + least.activations);
}

TEST(LeastMemoryTest, SettingsThatDoNotDivideAreNamed) {
    RunConfig settings;
    settings.global_batch_size = 3;
    EXPECT_EQ(least_memory(tiny(), settings, 2, 2, 16).error().field, "--global-batch-size");
}

}  // namespace
}  // namespace atl::training_memory
