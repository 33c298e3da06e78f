#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/config.h"

namespace atl::model {

// What a rank has of a model: of every layer one of `tensor_ranks` parts, which has as many heads and feed-forward
// channels less; and a range of the blocks, which are numbered from the embedding on, the head being the last. Norms,
// the embedding and the head are not cut.
struct ModelPart {
    int tensor_rank = 0;
    int tensor_ranks = 1;
    std::int64_t first_block = 0;
    std::int64_t block_count = 0;  // 0: to the last one
};

// Stage number `stage` of `stages`, which have as many blocks or one less.
ModelPart model_part(const ModelConfig& config, int tensor_rank, int tensor_ranks, int stage, int stages);

// kInvalidArgument names the key of the configuration: what is to be cut does not divide, or there are fewer blocks
// than stages.
Status check_parts(const ModelConfig& config, int tensor_ranks, int stages);

// A model is its units of parameters and its blocks in the order they run. It holds no tensors. A training step:
//
//   x₀ = empty
//   for each block but the last:  gather its units' weights; forward(input xᵢ, output xᵢ₊₁, saved sᵢ)
//   for each block from the last: gather its units' weights; backward(input xᵢ, saved sᵢ, gradient dᵢ₊₁ -> dᵢ);
//                                 reduce each unit whose first block this is
//
// A unit's first backward of a step overwrites its gradients, later ones (its other block, further micro-batches)
// accumulate. dᵢ may be the same buffer as dᵢ₊₁.
struct Model {
    ModelConfig config;  // of the whole model
    ModelPart part = {};
    kernels::Formats formats = {};
    std::vector<FsdpUnit> units;
    std::vector<std::unique_ptr<Block>> blocks;

    // Keeps weights, activations and all else in these; adapters' weights stay fp32, quantised matrices what they are.
    void use_formats(const kernels::Formats& given);

    // The first block that uses each unit: after its backward the unit's gradient is complete.
    std::vector<std::size_t> first_block_of_unit() const;
    // The first block that has anything to train: backward need not go below it. blocks.size() if there is none.
    std::size_t first_trained_block() const;
    std::int64_t parameter_count() const;
    double forward_flops(const BatchShape& shape) const;
};

// Of a configuration whose numbers fit together, as parse_config() gives it, and a part that check_parts() lets pass.
// The blocks of a part of the layers compute partial results: whoever runs them sums those of all parts. The head of a
// tied model has a table of its own where the embedding is in another part.
Model make_model(const ModelConfig& config, const ModelPart& part = {});

// Keeps the matrices of the layers, which are whole, in a quantised format and freezes all but adapters. Embedding,
// head, norms and biases stay as they are, as in QLoRA.
void quantize_layers(Model& model, tensor::DType format);

}  // namespace atl::model
