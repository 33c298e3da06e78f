// What is asked of a facility before a training is submitted is no more than the trainer takes there.
#include "shared/training_memory/least_memory.h"

#include <gtest/gtest.h>

#include "shared/adapter/adapter.h"
#include "trainer/kernels/planned_gpu.h"
#include "trainer/model/lora.h"
#include "trainer/parallel/run_memory.h"
#include "trainer/weights/storage.h"

namespace atl::parallel {
namespace {

using run_settings::ActivationCheckpointing;
using run_settings::Precision;
using run_settings::RunConfig;

constexpr std::int64_t kLength = 64;
constexpr int kRanks = 4, kRanksOnNode = 2;

model_config::ModelConfig config_of(const char* members) {
    const std::string text = std::string(R"({"vocab_size": 4000, "hidden_size": 256, "num_hidden_layers": 6,
        "num_attention_heads": 4, "max_position_embeddings": 128, )") +
                             members + "}";
    return model_config::parse_config(text).value();
}

kernels::Backend& cpu() {
    static const auto backend = kernels::make_cpu_backend(1).value();
    return *backend;
}

// The model that the settings train, as `atoll-trainer plan` lays it out.
model::Model model_of(const model_config::ModelConfig& config, const RunConfig& settings) {
    model::Model model = model::make_model(config);
    if (settings.lora_rank > 0) {
        EXPECT_TRUE(add_adapters(model, adapter::options_of(settings).value()).ok());
    }
    if (settings.quantize == run_settings::Quantization::kInt8) quantize_layers(model, tensor::DType::kInt8);
    if (settings.quantize == run_settings::Quantization::kNf4) quantize_layers(model, tensor::DType::kNf4);
    return model;
}

// As `atoll-trainer plan` does; rank 0 is not the smallest. Of the device's memory.
std::int64_t planned_bytes(const model_config::ModelConfig& config, const RunConfig& settings,
                           kernels::Backend& backend = cpu()) {
    model::Model model = model_of(config, settings);
    model.use_formats({.weights = weights::storage_dtype(settings.precision),
                       .activations = weights::storage_dtype(settings.computes_in()),
                       .residual = weights::storage_dtype(settings.residual_in())});
    const optim::Optimizer optimizer;
    const int group = plan_shard_group(settings, kRanks, kRanksOnNode).value();
    RunMemoryOptions options;
    options.engine = {{plan_batch(settings, kRanks)->micro, kLength},
                      true,
                      {},
                      {settings.activation_checkpointing, settings.checkpoint_layers}};
    options.layout = parallel_layout(settings.sharding, 0, kRanks, group);
    options.optimizer = &optimizer;
    options.has_control_variate = settings.control_variate > 0;
    options.offload_optimizer = settings.offload_optimizer;
    options.offload_params = settings.offload_params;
    return RunMemory::measure(backend, model, options).device_bytes;
}

TEST(LeastMemoryTest, IsNoMoreThanATrainingTakesAndMostOfIt) {
    const model_config::ModelConfig models[] = {
        config_of(R"("model_type": "llama", "intermediate_size": 700, "num_key_value_heads": 2)"),
        config_of(R"("model_type": "opt", "ffn_dim": 1024, "tie_word_embeddings": true)")};
    for (const auto& config : models)
        for (const Sharding sharding : {Sharding::kNone, Sharding::kShardOptimizer, Sharding::kShardGradOp,
                                        Sharding::kFullShard, Sharding::kHybridShard, Sharding::kHybridShardZero2})
            for (const auto checkpointing : {ActivationCheckpointing::kNone, ActivationCheckpointing::kFeedForward,
                                             ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull})
                for (const Precision precision : {Precision::kFp32, Precision::kBf16})
                    for (const auto offload : {run_settings::Offload::kNone, run_settings::Offload::kNvme}) {
                        RunConfig settings;
                        settings.batch_size = 4;
                        settings.sharding = sharding;
                        settings.activation_checkpointing = checkpointing;
                        settings.precision = precision;
                        settings.offload_optimizer = offload;
                        settings.control_variate = precision == Precision::kFp32 ? 0.7 : 0;
                        if (checkpointing == ActivationCheckpointing::kFull) settings.checkpoint_layers = 2;
                        const std::int64_t planned = planned_bytes(config, settings);
                        const std::int64_t least =
                            training_memory::least_memory(config, settings, kRanks, kRanksOnNode, kLength)->total();
                        const std::string variant = std::string(config.architecture.model_type) + " " +
                                                    std::string(to_string(sharding)) + " " +
                                                    std::string(to_string(checkpointing));
                        EXPECT_LE(least, planned) << variant;
                        if (sharding == Sharding::kNone && offload == run_settings::Offload::kNone) {
                            EXPECT_GE(least, planned / 2) << variant;
                        }
                    }
}

// Of a GPU without what the settings leave to the host.
TEST(LeastMemoryTest, OfAGpuIsNoMoreThanATrainingTakesThere) {
    using run_settings::Offload;
    const auto config = config_of(R"("model_type": "llama", "intermediate_size": 700, "num_key_value_heads": 2)");
    const auto gpu = kernels::make_planned_gpu({.architecture = 90, .memory_bytes = 80'000'000'000});
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardGradOp, Sharding::kFullShard})
        for (const Precision precision : {Precision::kFp32, Precision::kBf16})
            for (const Offload params : {Offload::kNone, Offload::kCpu})
                for (const Offload optimizer : {Offload::kNone, Offload::kCpu}) {
                    RunConfig settings;
                    settings.device = run_settings::Device::kCuda;
                    settings.batch_size = 4;
                    settings.sharding = sharding;
                    settings.precision = precision;
                    settings.offload_params = params;
                    settings.offload_optimizer = optimizer;
                    const auto least = training_memory::least_memory(config, settings, kRanks, kRanksOnNode, kLength);
                    const std::int64_t bytes = training_memory::device_bytes(*least, settings);
                    const std::int64_t planned = planned_bytes(config, settings, *gpu);
                    const std::string variant = std::string(to_string(sharding)) + " " +
                                                std::string(to_string(params)) + " " +
                                                std::string(to_string(optimizer));
                    EXPECT_LE(bytes, planned) << variant;
                    EXPECT_GE(bytes, planned / 4) << variant;
                }
}

TEST(LeastMemoryTest, OfAdaptersTheModelIsOnlyRead) {
    const auto config = config_of(R"("model_type": "llama", "intermediate_size": 700, "num_key_value_heads": 2)");
    for (const Sharding sharding : {Sharding::kNone, Sharding::kShardGradOp, Sharding::kFullShard})
        for (const auto quantize :
             {run_settings::Quantization::kNone, run_settings::Quantization::kInt8, run_settings::Quantization::kNf4})
            for (const Precision precision : {Precision::kFp32, Precision::kBf16})
                for (const char* targets : {"q_proj,v_proj", "all-linear", "layers.5.mlp.up_proj", "lm_head"}) {
                    RunConfig settings;
                    settings.batch_size = 4;
                    settings.sharding = sharding;
                    settings.precision = precision;
                    settings.quantize = quantize;
                    settings.lora_rank = 8;
                    settings.lora_targets = targets;
                    const std::int64_t planned = planned_bytes(config, settings);
                    const std::int64_t least =
                        training_memory::least_memory(config, settings, kRanks, kRanksOnNode, kLength)->total();
                    const std::string variant =
                        std::string(to_string(sharding)) + " " + std::string(to_string(quantize)) + " " + targets;
                    EXPECT_LE(least, planned) << variant;
                    if (sharding == Sharding::kNone) {
                        EXPECT_GE(least, planned / 3) << variant;
                    }
                }
}

}  // namespace
}  // namespace atl::parallel
