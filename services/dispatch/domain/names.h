#pragma once

#include <string>
#include <string_view>

#include "shared/json/json.h"

namespace atl::dispatch {

// Names of facilities, datasets, models and jobs: ^[a-z0-9][a-z0-9._-]{0,62}$
bool is_name(std::string_view text);

// A required member that must be a name; the reader fails otherwise.
std::string required_name(json::ObjectReader& reader, const char* key);

// True for a relative path without empty, "." or ".." segments.
bool is_safe_relative_path(std::string_view path);

}  // namespace atl::dispatch
