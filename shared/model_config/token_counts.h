#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/safetensors/safetensors.h"

// How often each token stood in the rows of a training, a file beside the model that it made: one tensor of fp32, a
// number for each row of the embedding. Who averages models may weigh the rows by it.
namespace atl::model_config {

inline constexpr char kTokenCountsFile[] = "token_counts.safetensors";
inline constexpr char kTokenCounts[] = "token_counts";

// Whether a tensor of this name and shape has a row for each token: the embedding, and the head.
bool has_token_rows(std::string_view name, const std::vector<std::int64_t>& shape);

// kInvalidArgument, naming the file, unless these are the tensors of such a file for so many tokens.
Status check_token_counts(const safetensors::Header& header, std::int64_t tokens);

}  // namespace atl::model_config
