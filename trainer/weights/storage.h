#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "shared/base/result.h"
#include "trainer/kernels/backend.h"
#include "trainer/weights/convert.h"

// The formats that weights are kept in, as flags and the files of a model know them.
namespace atl::weights {

// "fp32", "bf16", "fp16".
Result<tensor::DType> parse_storage(std::string_view flag, std::string_view name);

// kInt8 or kNf4 for "int8" and "nf4"; absent: "none", or nothing that there is.
std::optional<tensor::DType> parse_quantize(std::string_view name);

// kF32, kF16 or kBF16.
weights::DType file_dtype(tensor::DType storage);

// Writes fp32 values into a tensor of any such format, rounded to nearest. False when one of them is beyond its range.
bool store_values(std::span<const float> values, const tensor::Tensor& to, kernels::Backend& backend);

}  // namespace atl::weights
