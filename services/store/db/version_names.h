#pragma once

#include <string>

#include "shared/base/result.h"
#include "shared/pg/pg.h"

namespace atl::store {

// The digest of the version that "newest", "round3" or the beginning of a digest means (domain/version_reference.h).
// kNotFound, or kInvalidArgument where the beginning is too short or means several; both with the field "version".
Result<std::string> resolve_version(pg::Connection& connection, const std::string& model, const std::string& reference);

}  // namespace atl::store
