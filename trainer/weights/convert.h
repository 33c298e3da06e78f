#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shared/safetensors/safetensors.h"

// Between fp32 and the numbers on disk. Pure functions; the same bits on every CPU.
namespace atl::weights {

using safetensors::DType;

// kF32, kF16 or kBF16.
bool is_weight_dtype(DType dtype);

// False when a value is NaN or infinite.
bool all_finite(std::span<const float> values);

// Widens out.size() elements of `bytes` (exact; `bytes` may be unaligned). False when one of them is NaN or infinite.
bool widen(DType dtype, std::span<const std::byte> bytes, std::span<float> out);

// Rounds to nearest, ties to even, into out (size_bytes(dtype) bytes an element). False when a result is NaN or
// infinite: the value was, or it is beyond the dtype's range.
bool narrow(DType dtype, std::span<const float> values, std::span<std::byte> out);

}  // namespace atl::weights
