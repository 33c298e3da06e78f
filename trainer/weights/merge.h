#pragma once

#include <filesystem>
#include <optional>

#include "shared/base/result.h"
#include "trainer/model/model.h"
#include "trainer/weights/load.h"
#include "trainer/weights/save.h"

namespace atl::weights {

// The command `merge`: writes the model directory whose weights are W + alpha / rank · B·A wherever the adapter has a
// pair of matrices. Rows are merged a few at a time; neither model is ever whole in memory.
struct MergeOptions {
    std::filesystem::path model;
    std::filesystem::path adapter;
    std::filesystem::path out;
    std::optional<DType> dtype;  // absent: each tensor as in the model
};
// `adapted` is the model with the adapter's matrices; both directories hold its tensors. A matrix of it that is
// quantised is what that format makes of the model's weights, as it was while the adapter was trained on a quantised
// base.
Result<ModelSize> merge_adapter(const MergeOptions& options, const model::Model& adapted);

}  // namespace atl::weights
