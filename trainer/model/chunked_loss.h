#pragma once

#include <cstdint>
#include <span>

#include "trainer/model/linear.h"

// The last product and the cross entropy, a chunk of rows at a time: the logits of all rows never exist together.
// Inside trainer/model only.
namespace atl::model {

// Rows whose logits exist at a time.
std::int64_t loss_chunk_rows(const BatchShape& shape, std::int64_t vocabulary);

// Scratch of a chunk.
struct LossScratch {
    Tensor logits;             // [chunk, V], then their gradient
    Tensor low, low_gradient;  // of the table's adapter
};
LossScratch cut_loss(tensor::Arena& arena, const LinearRun& table, const BatchShape& shape, std::int64_t vocabulary);

// losses [N] of features [N, C] · table [V, C]ᵀ. groups: the table's and that of its adapter.
void chunked_loss_forward(const Context& context, const LinearRun& table, std::span<const GroupView> groups,
                          const Tensor& features, const LossScratch& scratch, const Loss& loss);
// The same with the gradients of the groups, where they train, and of the features.
void chunked_loss_backward(const Context& context, const LinearRun& table, std::span<const GroupView> groups,
                           const Tensor& features, const LossScratch& scratch, const Loss& loss,
                           const Tensor& feature_gradients);

// The last row of each sequence of x [N, C], into last [B, C].
void last_rows(const Context& context, const Tensor& x, const Tensor& last);

}  // namespace atl::model
