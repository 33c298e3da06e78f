#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/checkpoint/load.h"
#include "trainer/model/block.h"
#include "trainer/quant/quantizer.h"

namespace atl::checkpoint {

quant::Format quant_format(tensor::DType stored);  // kInt8 or kNf4

// A matrix of a model's files in a quantised format, as a group of bytes keeps it. Read a few rows at a time: only its
// quantised form is ever whole in memory.
Result<std::vector<std::byte>> read_quantized(const WeightReader& weights, const model::Parameter& matrix);

}  // namespace atl::checkpoint
