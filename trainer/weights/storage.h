#pragma once

#include <optional>
#include <span>

#include "shared/run_settings/choices.h"
#include "trainer/kernels/backend.h"
#include "trainer/weights/convert.h"

// The formats that weights are kept in, as flags and the files of a model know them.
namespace atl::weights {

tensor::DType storage_dtype(run_settings::Precision precision);
// Absent: kNone.
std::optional<tensor::DType> storage_dtype(run_settings::Quantization quantization);

// kF32, kF16 or kBF16.
weights::DType file_dtype(tensor::DType storage);

// Writes fp32 values into a tensor of any such format, rounded to nearest. False when one of them is beyond its range.
bool store_values(std::span<const float> values, const tensor::Tensor& to, kernels::Backend& backend);

}  // namespace atl::weights
