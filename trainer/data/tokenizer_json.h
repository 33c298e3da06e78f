#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shared/base/result.h"

namespace atl::data {

// What of a Hugging Face tokenizer.json a byte-level BPE tokenizer is made of.
struct TokenizerJson {
    struct AddedToken {
        std::int32_t id = 0;
        std::string content;
        bool special = false;
    };
    std::unordered_map<std::string, std::int32_t> vocab;  // in GPT-2's alphabet of printable characters for bytes
    std::vector<std::pair<std::string, std::string>> merges;
    bool ignore_merges = false;  // a word that is a token stands for itself
    std::vector<AddedToken> added_tokens;
    std::vector<std::string> split_expressions;  // one after another
    bool add_prefix_space = false;
    std::string first_token;  // that the post-processor puts in front of a text; empty: none
};

// kInvalidArgument names the member that is missing, wrong or of a kind that is not built (another model than BPE, a
// normalizer, …): a tokenizer that would differ from the reference is never opened.
Result<TokenizerJson> parse_tokenizer_json(std::string_view text);

}  // namespace atl::data
