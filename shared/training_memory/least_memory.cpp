#include "shared/training_memory/least_memory.h"

#include <string>
#include <vector>

#include "shared/adapter/adapter.h"
#include "shared/model_config/tensors.h"

namespace atl::training_memory {
namespace {

using model_config::ModelConfig;
using model_config::TensorSpec;
using run_settings::ActivationCheckpointing;
using run_settings::Offload;
using run_settings::Precision;
using run_settings::Quantization;
using run_settings::RunConfig;
using run_settings::Sharding;

std::int64_t size_bytes(Precision precision) {
    return precision == Precision::kFp32 ? 4 : 2;
}

// How many ranks divide each kind among them.
struct Shares {
    std::int64_t weights = 1;
    std::int64_t gradients = 1;
    std::int64_t moments = 1;
};

Shares shares_of(Sharding sharding, std::int64_t ranks, std::int64_t group) {
    const std::int64_t shards = is_hybrid(sharding) ? group : ranks;
    const bool is_full = sharding == Sharding::kFullShard || sharding == Sharding::kHybridShard;
    const bool has_gradients = sharding >= Sharding::kShardGradOp;
    return {.weights = is_full ? shards : 1,
            .gradients = has_gradients ? shards : 1,
            .moments = sharding == Sharding::kNone ? 1 : shards};
}

std::int64_t moment_count(const RunConfig& settings) {
    if (settings.optimizer != run_settings::OptimizerKind::kSgd) return 2;
    return settings.momentum > 0 ? 1 : 0;
}

std::int64_t element_count(const std::vector<TensorSpec>& tensors) {
    std::int64_t all = 0;
    for (const TensorSpec& tensor : tensors) {
        std::int64_t count = 1;
        for (const std::int64_t extent : tensor.shape) count *= extent;
        all += count;
    }
    return all;
}

// The model's own weights. Quantised are the matrices of its layers; what that keeps beside them is left out.
std::int64_t weight_bytes(const ModelConfig& model, const RunConfig& settings) {
    const std::vector<TensorSpec> tensors = model_config::tensors_of(model);
    const std::int64_t all = element_count(tensors);
    if (settings.quantize == Quantization::kNone) return all * size_bytes(settings.precision);
    std::vector<TensorSpec> matrices;
    for (const TensorSpec& tensor : tensors)
        if (tensor.shape.size() == 2 && tensor.name.find("layers.") != std::string::npos) matrices.push_back(tensor);
    const std::int64_t quantised = element_count(matrices);
    return (all - quantised) * size_bytes(settings.precision) +
           (settings.quantize == Quantization::kInt8 ? quantised : quantised / 2);
}

// Layers whose forward pass is kept whole. Of others their input is.
std::int64_t whole_layers(const ModelConfig& model, const RunConfig& settings) {
    if (settings.activation_checkpointing == ActivationCheckpointing::kNone) return model.num_hidden_layers;
    return settings.checkpoint_layers > 0 ? model.num_hidden_layers - settings.checkpoint_layers : 0;
}

// Of one micro-step: each layer's input, and of a whole layer query, key, value, attention, the sum between its halves
// and what the activation takes.
std::int64_t activation_bytes(const ModelConfig& model, const RunConfig& settings, std::int64_t tokens) {
    const std::int64_t heads = model.num_attention_heads + 2 * model.num_key_value_heads + model.num_attention_heads;
    const bool is_gated = model.architecture.activation == model_config::Activation::kSwiglu;
    const std::int64_t channels = heads * model.head_dim + (is_gated ? 2 : 1) * model.intermediate_size;
    const std::int64_t residual = model.hidden_size * size_bytes(settings.residual_in());
    return tokens * (model.num_hidden_layers * residual +
                     whole_layers(model, settings) * (residual + channels * size_bytes(settings.computes_in())));
}

Result<std::vector<TensorSpec>> adapter_tensors(const ModelConfig& model, const RunConfig& settings) {
    if (settings.lora_rank == 0) return std::vector<TensorSpec>();
    ATOLL_TRY(const adapter::LoraOptions options, adapter::options_of(settings));
    return adapter::tensors_on(options, model_config::tensors_of(model));
}

// Of the adapters' numbers those that are only read.
std::int64_t frozen_count(std::vector<TensorSpec> adapters, const RunConfig& settings) {
    if (settings.lora_freeze_a == run_settings::OnOff::kOff) return 0;
    std::erase_if(adapters, [](const TensorSpec& tensor) { return !tensor.name.ends_with(adapter::kA); });
    return element_count(adapters);
}

}  // namespace

std::int64_t parameter_count(const ModelConfig& model) {
    return element_count(model_config::tensors_of(model));
}

std::int64_t device_bytes(const LeastMemory& least, const RunConfig& settings) {
    std::int64_t bytes = least.total();
    if (settings.offload_params == Offload::kCpu) bytes -= least.weights;
    if (settings.offload_optimizer == Offload::kCpu) bytes -= least.masters + least.moments;
    return bytes;
}

Result<LeastMemory> least_memory(const ModelConfig& model, const RunConfig& settings, int ranks, int ranks_on_node,
                                 std::int64_t seq_len) {
    ATOLL_TRY(const run_settings::BatchPlan batch, plan_batch(settings, ranks));
    ATOLL_TRY(const int group, plan_shard_group(settings, ranks, ranks_on_node));
    const Shares shares = shares_of(settings.sharding, ranks, group);
    ATOLL_TRY(const std::vector<TensorSpec> adapters, adapter_tensors(model, settings));
    const bool has_adapters = !adapters.empty();  // in fp32, on weights that are only read
    const std::int64_t all = has_adapters ? element_count(adapters) : parameter_count(model);
    const std::int64_t trained = all - frozen_count(adapters, settings);
    const bool is_on_disk = settings.offload_optimizer == Offload::kNvme;
    const bool has_masters =
        !has_adapters && settings.precision != Precision::kFp32 && settings.masters == run_settings::Masters::kFp32;
    const std::int64_t moment_bytes = settings.moments_dtype == run_settings::MomentsPrecision::kFp32 ? 4 : 2;
    LeastMemory least;
    least.weights = weight_bytes(model, settings) / shares.weights;
    if (has_adapters) least.weights += all / shares.weights * 4;
    least.gradients = trained / shares.gradients * 4;
    if (has_masters && !is_on_disk) least.masters = trained / shares.moments * 4;
    if (!is_on_disk) least.moments = trained / shares.moments * moment_count(settings) * moment_bytes;
    if (settings.control_variate > 0)
        least.control_variate = trained / (is_hybrid(settings.sharding) ? group : ranks) * 8;
    least.activations = activation_bytes(model, settings, batch.micro * seq_len);
    return least;
}

}  // namespace atl::training_memory
