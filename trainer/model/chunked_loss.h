#pragma once

#include <cstdint>

#include "trainer/model/block.h"

// The last product and the cross entropy, a chunk of rows at a time: the logits of all rows never exist together.
// Inside trainer/model only.
namespace atl::model {

// Rows whose logits exist at a time.
std::int64_t loss_chunk_rows(const BatchShape& shape, std::int64_t vocabulary);

// losses [N] of features [N, C] · table [V, C]ᵀ. logits: scratch [chunk, V].
void chunked_loss_forward(const Context& context, const Tensor& features, const Tensor& table, const Tensor& logits,
                          const Loss& loss);
// The same with the gradients of the table (added when accumulate; none when empty) and of the features.
void chunked_loss_backward(const Context& context, const Tensor& features, const Tensor& table, const Tensor& logits,
                           const Loss& loss, const Tensor& table_gradient, bool accumulate,
                           const Tensor& feature_gradients);

// The last row of each sequence of x [N, C], into last [B, C].
void last_rows(const Context& context, const Tensor& x, const Tensor& last);

}  // namespace atl::model
