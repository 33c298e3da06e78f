#pragma once

#include <cstdint>
#include <string>

#include "shared/json/json.h"

namespace atl::dispatch {

// Tokenising a dataset's raw text at one facility.
struct PreparationSpec {
    std::string facility;
    std::string dataset;
    std::string tokenizer_model;
    std::string tokenizer_version;  // digest or tag
    std::string input;              // at the site, absolute or relative to its work directory
    std::int64_t seq_len = 0;
    std::string batching;  // "packing" or "padding"
    std::int64_t validation_percent = 0;
};

Result<PreparationSpec> parse_preparation_spec(const json::Json& value);
json::Json to_json(const PreparationSpec& spec);

}  // namespace atl::dispatch
