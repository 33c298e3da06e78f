#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "trainer/checkpoint/load.h"

// The files of a model directory beside its weights. Inside trainer/checkpoint only.
namespace atl::checkpoint {

// The dtype that all tensors share, if they do.
std::optional<DType> common_dtype(std::span<const TensorSpec> tensors);

// Copies config.json (`config_text`, or else the file `config`, or else that of `base`) and the tokenizer and
// generation files of `base` that are there. config.json's dtype or torch_dtype is set to `dtype` when it is another.
// Returns their names.
Result<std::vector<std::string>> copy_model_files(const std::filesystem::path& base,
                                                  const std::filesystem::path& config, const std::string& config_text,
                                                  std::optional<DType> dtype, const std::filesystem::path& out);

// Moves `names` from `work` into `out`, in this order, and removes weights in `out` that are not among them. Readers
// see the old model or the new one, or, while several shards take the place of older ones, no model: never a mixture.
Status replace_model_files(const std::filesystem::path& work, const std::filesystem::path& out,
                           const std::vector<std::string>& names);

}  // namespace atl::checkpoint
