#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/result.h"
#include "trainer/weights/load.h"

// The names of a directory's weights, and the files of a model directory beside them. Inside trainer/weights and
// trainer/importer only.
namespace atl::weights {

inline constexpr char kWeightSuffix[] = ".safetensors";
inline constexpr char kIndexSuffix[] = ".safetensors.index.json";

// Whether weights of this stem (WeightFiles) may lie in a file of this name: in one file, in shards, or their index.
bool is_weight_file(std::string_view stem, std::string_view name);

// The dtype that all tensors share, if they do.
std::optional<DType> common_dtype(std::span<const TensorSpec> tensors);

// Copies config.json (`config_text`, or else the file `config`, or else that of `base`) and the tokenizer and
// generation files of `base` that are there. config.json's dtype or torch_dtype is set to `dtype` when it is another.
Status copy_model_files(const std::filesystem::path& base, const std::filesystem::path& config,
                        const std::string& config_text, std::optional<DType> dtype, const std::filesystem::path& out);

}  // namespace atl::weights
