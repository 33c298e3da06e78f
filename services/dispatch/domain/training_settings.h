#pragma once

#include <string>

#include "shared/json/json.h"

namespace atl::dispatch {

// Checks an object of training settings (keys of the trainer's run.json) against the one table of keys, types and
// bounds. `path` is the object's own field name ("training"); the error names the first wrong key.
Status check_training_settings(const json::Json& settings, const std::string& path);

// `base` with the members of `overrides` on top.
json::Json merge_training_settings(json::Json base, const json::Json& overrides);

}  // namespace atl::dispatch
