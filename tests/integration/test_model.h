#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "shared/safetensors/file.h"

namespace atl {

// A model of two tensors, layer.weight and norm.weight, for tests of the store and of the aggregation.
struct ModelOptions {
    std::int64_t elements = 5000;                         // of the large tensor
    float offset = 0;                                     // added to every element, so that models differ
    bool nan = false;                                     // one at the end
    safetensors::DType dtype = safetensors::DType::kF32;  // kI32: zeros
    std::string file = "model.safetensors";
    std::int64_t tokens = 0;               // above 0: the large tensor is an embedding of as many rows
    std::vector<float> token_counts = {};  // beside the model; empty: none
    float control_variate = 0;             // of its first elements, beside the model; 0: none
    std::string trained_from = {};         // what the control variate calls its base
};

// Writes config.json and the weights into the directory, which it makes.
void write_model(const std::filesystem::path& directory, const ModelOptions& options);

}  // namespace atl
