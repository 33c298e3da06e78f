#pragma once

#include <cstdint>
#include <span>

#include "trainer/model/linear.h"

// The last product and the cross entropy, a chunk of tokens at a time: the logits of all tokens never exist together.
// Inside trainer/model only.
namespace atl::model {

// Tokens whose logits exist at a time: as many as the backend likes, at most those of the batch.
std::int64_t loss_chunk_tokens(const kernels::Backend& backend, const BatchShape& shape, std::int64_t vocabulary);

// Scratch of a chunk.
struct LossScratch {
    Tensor logits;                             // [chunk, V], then their gradient
    Tensor lora_hidden, lora_hidden_gradient;  // of the table's adapter
};
LossScratch allocate_loss(tensor::Arena& arena, const kernels::Formats& formats, const FusedLinear& table,
                          std::int64_t chunk_tokens, std::int64_t vocabulary);

// losses [N] of features [N, C] · table [V, C]ᵀ. units: the table's and that of its adapter.
void chunked_loss_forward(const Context& context, const FusedLinear& table, std::span<const UnitView> units,
                          const Tensor& features, const LossScratch& scratch, const Loss& loss);
// The same with the gradients of the units, where they train, and of the features.
void chunked_loss_backward(const Context& context, const FusedLinear& table, std::span<const UnitView> units,
                           const Tensor& features, const LossScratch& scratch, const Loss& loss,
                           const Tensor& feature_gradients);

// Each sequence's last token in x [N, C], into last [B, C].
void copy_last_tokens(const Context& context, const Tensor& x, const Tensor& last);

}  // namespace atl::model
