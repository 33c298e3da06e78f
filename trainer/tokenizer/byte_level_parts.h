#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shared/base/result.h"
#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/normalizer.h"
#include "trainer/tokenizer/tokenizer_config.h"

namespace atl::tokenizer {

// What a byte-level BPE tokenizer is made of, whichever files it came in.
struct ByteLevelParts {
    std::unordered_map<std::string, std::int32_t> vocab;  // in GPT-2's alphabet of printable characters for bytes
    std::vector<std::pair<std::string, std::string>> merges;
    bool ignore_merges = false;  // a word that is a token stands for itself
    std::vector<AddedToken> added_tokens;
    std::vector<NormalForm> normalizers;         // one after another
    std::vector<std::string> split_expressions;  // one after another
    bool add_prefix_space = false;
    std::string first_token;  // that is put in front of a text; empty: none
    std::string bos;          // the tokens with these roles; empty: none
    std::string eos;
    // Where vocabulary and merges stand, for messages.
    const char* vocab_field = "model.vocab";
    const char* merges_field = "model.merges";
};

// Brings the parts to what transformers 5 makes of them with the files beside the tokenizer's own. kInvalidArgument
// names the member that contradicts them.
Status apply_config(const TokenizerConfig& config, ByteLevelParts& parts);

}  // namespace atl::tokenizer
