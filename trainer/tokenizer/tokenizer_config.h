#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "trainer/tokenizer/byte_level_parts.h"

namespace atl::tokenizer {

// What matters here of the files beside a tokenizer's own: tokenizer_config.json and, in directories older than its
// added_tokens_decoder, special_tokens_map.json and added_tokens.json.
struct TokenizerConfig {
    std::optional<bool> add_bos;  // add_bos_token
    std::string bos;              // the token's text; empty: not named
    std::string eos;
    std::vector<std::string> specials;  // all special tokens that are named
    std::string tokenizer_class;        // of transformers; empty: not named
    bool add_prefix_space = false;
    bool legacy = false;  // of a tokenizer.model: a space comes before texts behind special tokens too
    std::vector<ByteLevelParts::AddedToken> added_tokens;
};

// Absent files say nothing; special_tokens_map.json wins over tokenizer_config.json, as in transformers.
// kInvalidArgument names the file and the member that is wrong.
Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& directory);

}  // namespace atl::tokenizer
