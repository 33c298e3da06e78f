#pragma once

#include <string>
#include <vector>

#include "shared/base/text.h"

namespace atl::dispatch {

// A timestamptz column as Unix milliseconds, and back.
inline std::string sql_to_ms(const std::string& column) {
    return "(extract(epoch FROM " + column + ") * 1000)::bigint";
}
inline std::string sql_from_ms(const std::string& parameter) {
    return "to_timestamp(" + parameter + "::float8 / 1000)";
}

// Identifiers of ours (letters, digits, ".", "_" and "-" only) as a text[] parameter.
inline std::string sql_array(const std::vector<std::string>& words) {
    return "{" + join(words, ",") + "}";
}

}  // namespace atl::dispatch
