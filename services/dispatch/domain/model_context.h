#pragma once

#include <cstdint>
#include <optional>

#include "shared/json/json.h"

namespace atl::dispatch {

// The most tokens of a row that atoll-trainer takes with a model of this config.json: max_position_embeddings, or a
// Mistral's sliding_window. None: there is no limit, as where rotary scaling follows the length ("dynamic"), or it
// cannot be told; then the trainer has the last word.
std::optional<std::int64_t> row_tokens_max(const json::Json& config);

}  // namespace atl::dispatch
