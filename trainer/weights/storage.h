#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "shared/base/result.h"
#include "shared/run_settings/choices.h"
#include "shared/safetensors/safetensors.h"
#include "trainer/kernels/backend.h"
#include "trainer/quant/quantizer.h"

// The formats that weights are kept in: tensor::DType in memory, safetensors::DType in files, quant::Format for the
// quantiser. What turns one into another, or a flag into one, is here.
namespace atl::weights {

using safetensors::DType;

tensor::DType storage_dtype(run_settings::Precision precision);
// Absent: kNone.
std::optional<tensor::DType> storage_dtype(run_settings::Quantization quantization);

// kF32, kF16 or kBF16.
DType file_dtype(tensor::DType storage);
// kInt8 or kNf4.
quant::Format quant_format(tensor::DType storage);
// "fp32", "fp16", "bf16" (flags) or "float32", "float16", "bfloat16" (config.json). kInvalidArgument otherwise.
Result<DType> parse_file_dtype(std::string_view name);

// Writes fp32 values into a tensor of any such format, rounded to nearest. False when one of them is beyond its range.
bool store_values(std::span<const float> values, const tensor::Tensor& to, kernels::Backend& backend);

// Between fp32 and the numbers on disk: pure functions; the same bits on every CPU.

// False when a value is NaN or infinite.
bool all_finite(std::span<const float> values);

// Widens out.size() elements of `bytes` (exact; `bytes` may be unaligned). False when one of them is NaN or infinite.
bool widen(DType dtype, std::span<const std::byte> bytes, std::span<float> out);

// Rounds to nearest, ties to even, into out (size_bytes(dtype) bytes an element). False when a result is NaN or
// infinite: the value was, or it is beyond the dtype's range.
bool narrow(DType dtype, std::span<const float> values, std::span<std::byte> out);

}  // namespace atl::weights
