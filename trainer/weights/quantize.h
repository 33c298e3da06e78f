#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/quant/quantizer.h"
#include "trainer/weights/load.h"

namespace atl::weights {

// A matrix of a model's files in a quantised format, as a unit of bytes keeps it, handed over as it is made. Read a
// few rows at a time: no form of it is ever whole in memory.
Status read_quantized(const WeightReader& weights, const model::Parameter& matrix, quant::TakeBytes take);
// The same, collected.
Result<std::vector<std::byte>> read_quantized(const WeightReader& weights, const model::Parameter& matrix);

}  // namespace atl::weights
