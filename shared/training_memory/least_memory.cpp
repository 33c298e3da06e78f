#include "shared/training_memory/least_memory.h"

#include "shared/model_config/tensors.h"

namespace atl::training_memory {
namespace {

using model_config::ModelConfig;
using run_settings::ActivationCheckpointing;
using run_settings::Offload;
using run_settings::Precision;
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

}  // namespace

std::int64_t parameter_count(const ModelConfig& model) {
    std::int64_t all = 0;
    for (const model_config::TensorSpec& tensor : model_config::tensors_of(model)) {
        std::int64_t count = 1;
        for (const std::int64_t extent : tensor.shape) count *= extent;
        all += count;
    }
    return all;
}

Result<LeastMemory> least_memory(const ModelConfig& model, const RunConfig& settings, int ranks, int ranks_on_node,
                                 std::int64_t seq_len) {
    ATOLL_TRY(const run_settings::BatchPlan batch, plan_batch(settings, ranks));
    ATOLL_TRY(const int group, plan_shard_group(settings, ranks, ranks_on_node));
    const Shares shares = shares_of(settings.sharding, ranks, group);
    const std::int64_t parameters = parameter_count(model);
    const bool is_on_disk = settings.offload_optimizer == Offload::kNvme;
    const bool has_masters = settings.precision != Precision::kFp32 && settings.masters == run_settings::Masters::kFp32;
    const std::int64_t moment_bytes = settings.moments_dtype == run_settings::MomentsPrecision::kFp32 ? 4 : 2;
    LeastMemory least;
    least.weights = parameters / shares.weights * size_bytes(settings.precision);
    least.gradients = parameters / shares.gradients * 4;
    if (has_masters && !is_on_disk) least.masters = parameters / shares.moments * 4;
    if (!is_on_disk) least.moments = parameters / shares.moments * moment_count(settings) * moment_bytes;
    least.activations = activation_bytes(model, settings, batch.micro * seq_len);
    return least;
}

}  // namespace atl::training_memory
