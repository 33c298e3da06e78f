#pragma once

#include <filesystem>
#include <optional>

#include "shared/base/result.h"
#include "trainer/checkpoint/load.h"
#include "trainer/tensor/tensor.h"

namespace atl::checkpoint {

// The command `merge`: writes the model directory whose weights are W + alpha / rank · B·A wherever the adapter has a
// pair of matrices. Rows are merged a few at a time; neither model is ever whole in memory.
struct MergeOptions {
    std::filesystem::path model;
    std::filesystem::path adapter;
    std::filesystem::path out;
    std::optional<DType> dtype;  // absent: each tensor as in the model
    // W is what this format (kInt8, kNf4) makes of the model's weights, as it was while the adapter was trained on a
    // quantised base; absent: the model's own weights.
    std::optional<tensor::DType> quantize;
};
// kInvalidArgument: an adapter that is not for this model.
Status merge_adapter(const MergeOptions& options);

}  // namespace atl::checkpoint
