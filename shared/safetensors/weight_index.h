#pragma once

#include <string_view>

#include "shared/base/result.h"
#include "shared/safetensors/file.h"

namespace atl::safetensors {

// As read_weight_index(), of a text that is read already. The error does not name the file.
Result<WeightMap> parse_weight_index(std::string_view text);

}  // namespace atl::safetensors
