#pragma once

#include "shared/json/json.h"
#include "shared/store_client/manifest.h"

namespace atl::dispatch {

// The files of a model version that decide how its tokenizer cuts texts, by their content:
//
//   {"vocabulary": {"tokenizer.json": "<sha256>"}, "settings": {"tokenizer_config.json": "<sha256>"}}
//
// Two versions that have the same have the same tokenizer, and two of which no vocabulary file is the same have
// different ones. Null: the version has no tokenizer.
json::Json tokenizer_files(const store_client::Manifest& manifest);

}  // namespace atl::dispatch
