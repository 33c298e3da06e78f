#pragma once

#include <cstdint>

#include "shared/model_config/model_config.h"
#include "shared/run_settings/run_settings.h"

// What is known of a training's memory from its settings and config.json alone.
namespace atl::training_memory {

// Bytes of one rank that a training cannot do without, of all weights or, with lora_rank, of adapters on them.
// atoll-trainer takes these and more: buffers, the program, MPI (trainer/parallel/run_memory.h lays them out).
struct LeastMemory {
    std::int64_t weights = 0;
    std::int64_t gradients = 0;
    std::int64_t masters = 0;
    std::int64_t moments = 0;
    std::int64_t activations = 0;      // what the layers keep for the backward pass
    std::int64_t control_variate = 0;  // the sum of the gradients and what is added to them
    std::int64_t total() const { return weights + gradients + masters + moments + activations + control_variate; }
};

// Of rows of `seq_len` tokens. An error: plan_batch() or plan_shard_group() would not take the settings, or the model
// has no such linears as lora_targets names.
Result<LeastMemory> least_memory(const model_config::ModelConfig& model, const run_settings::RunConfig& settings,
                                 int ranks, int ranks_on_node, std::int64_t seq_len);

// What of it a GPU has to hold: all but what the settings leave to the host's memory.
std::int64_t device_bytes(const LeastMemory& least, const run_settings::RunConfig& settings);

// The numbers of all of the model's tensors.
std::int64_t parameter_count(const model_config::ModelConfig& model);

}  // namespace atl::training_memory
