#pragma once

#include <optional>

#include "trainer/tensor/tensor.h"

namespace atl::kernels {

// In which format each kind of a run's tensors is kept: one object a run, made from --precision and the flags beside it
// (trainer/README.md has the table). Model and engine allocate by it. Operations compute in fp32 and round once, where
// they write (kernels/backend.h); products multiply in the format of their left operand, an activation.
struct Formats {
    using DType = tensor::DType;

    DType weights = DType::kF32;      // of the model, between steps and as they are gathered; adapters' are fp32
    DType activations = DType::kF32;  // what the operations of a block hand on, the logits, and the gradients of both
    DType residual = DType::kF32;     // what a block hands to the next, and its gradient: fp32, or as activations
    // Of parameters, as a block's backward pass leaves them to be reduced at once. No flag makes it narrower: an
    // embedding adds up a row for each of its tokens there, and a head chunks of tokens.
    DType gradients = DType::kF32;
    DType reduced = DType::kF32;      // of those on their way between ranks, where fp32 adds them
    DType accumulated = DType::kF32;  // of their sums over micro-steps and ranks, which the optimizer reads
    // What an optimizer updates beside weights that are kept in another format; without it updates those themselves
    // (bf16) and rounds stochastically.
    std::optional<DType> masters = DType::kF32;
    DType moments = DType::kF32;
};

// What no flag changes: statistics of norms, log-sums of attention, losses, tables of rotary positions, logits that the
// host reads.
inline constexpr tensor::DType kStatistics = tensor::DType::kF32;

}  // namespace atl::kernels
