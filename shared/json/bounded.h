#pragma once

#include <cstddef>
#include <string_view>

#include "shared/json/json.h"

namespace atl::json {

// As parse(), for text that comes from outside: also refused is a text of more than `values_max` values. A value takes
// some hundred bytes of memory where its text can be of two, as in [1,1,1].
Result<Json> parse_bounded(std::string_view text, std::size_t values_max, int depth_max = 64);

}  // namespace atl::json
