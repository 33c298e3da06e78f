#pragma once

#include <string_view>

#include "shared/json/json.h"

namespace atl::json {

// As parse(), but an integer that 64 bits cannot hold becomes the string of its digits, where parse() rounds it.
Result<Json> parse_keeping_digits(std::string_view text);

}  // namespace atl::json
