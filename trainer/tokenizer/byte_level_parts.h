#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trainer/tokenizer/normalizer.h"

namespace atl::tokenizer {

// What a byte-level BPE tokenizer is made of, whichever files it came in.
struct ByteLevelParts {
    struct AddedToken {
        std::int32_t id = 0;
        std::string content;
        bool special = false;
        bool normalized = true;      // found in the normalized text, else in the text as it is, before
        bool strips_spaces = false;  // lstrip or rstrip; of special ones, which stay text within texts
    };
    std::unordered_map<std::string, std::int32_t> vocab;  // in GPT-2's alphabet of printable characters for bytes
    std::vector<std::pair<std::string, std::string>> merges;
    bool ignore_merges = false;  // a word that is a token stands for itself
    std::vector<AddedToken> added_tokens;
    std::vector<NormalForm> normalizers;         // one after another
    std::vector<std::string> split_expressions;  // one after another
    bool add_prefix_space = false;
    std::string first_token;  // that is put in front of a text; empty: none
    // Where vocabulary and merges stand, for messages.
    const char* vocab_field = "model.vocab";
    const char* merges_field = "model.merges";
};

}  // namespace atl::tokenizer
