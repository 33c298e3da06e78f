#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/json/json.h"

namespace atl::dispatch {

// Tokenising a dataset's raw text at one facility.
struct PreparationSpec {
    std::string facility;
    std::string dataset;
    std::string tokenizer_model;
    std::string tokenizer_version;  // digest or tag
    // Paths at the site, separated by commas, absolute or relative to its work directory: files, directories, patterns.
    std::string input;
    std::string input_format = "auto";  // of all files: one of run_settings::kInputFormats
    std::int64_t seq_len = 0;
    std::string batching;                 // "packing" or "padding"
    std::int64_t validation_percent = 0;  // of the input's documents; 0 where they are in files of their own
    std::string validation_input;         // as input; empty: some of that one's
};

Result<PreparationSpec> parse_preparation_spec(const json::Json& value);
// The paths of an `input`.
std::vector<std::string> input_paths(const std::string& input);
json::Json to_json(const PreparationSpec& spec);

}  // namespace atl::dispatch
