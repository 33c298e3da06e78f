#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/json/json.h"
#include "trainer/tokenizer/added_tokens.h"

namespace atl::tokenizer {

// The settings in the files beside a tokenizer's own: tokenizer_config.json and, where that has no
// added_tokens_decoder, special_tokens_map.json and added_tokens.json.
struct TokenizerConfig {
    std::optional<bool> add_bos;  // add_bos_token
    // The token of each role that is named: "eos_token", … and a model's own, "image_token". Empty: null in the file.
    std::map<std::string, std::string> roles;
    std::vector<std::string> other_specials;  // of extra_special_tokens
    std::vector<std::string> listed;          // in any list of special tokens of these files
    std::string tokenizer_class;              // of transformers, without "Fast"; empty: not named
    std::optional<bool> add_prefix_space;
    bool legacy = false;                   // of a tokenizer.model: a space comes before texts behind special tokens too
    bool has_decoder = false;              // added_tokens come from added_tokens_decoder
    std::vector<AddedToken> added_tokens;  // by id

    // Whether it is Llama's class, or CodeLlama's.
    bool is_llama() const;
    // Whether what stands in any list of the files is special, without an added_tokens_decoder.
    bool has_special_lists() const {
        return !has_decoder && (tokenizer_class == "Qwen2Tokenizer" || tokenizer_class == "CohereTokenizer");
    }
    // Whether texts begin without the space that a tokenizer of these classes puts before them.
    bool drops_prefix_space() const { return is_llama() && add_prefix_space == false; }
    // The token of a role; `fallback` where the role is not named.
    std::string token_of(const std::string& role, const std::string& fallback = "") const;
};

// Absent files say nothing; special_tokens_map.json wins over tokenizer_config.json, as in transformers.
// kInvalidArgument names the file and the member that is wrong.
Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& directory);

// The same from the texts of the three files; null: no such file.
struct ConfigFiles {
    json::Json main;            // tokenizer_config.json
    json::Json special_tokens;  // special_tokens_map.json
    json::Json added_tokens;    // added_tokens.json
};
Result<TokenizerConfig> parse_tokenizer_config(const ConfigFiles& files);

// A vocabulary as added tokens see it.
struct Vocabulary {
    std::function<std::optional<std::int32_t>(const std::string& token)> id_of;
    std::int32_t size = 0;  // tokens
};

// What of the tokens decides ids, the same for the same: nothing where all of them stay text.
json::Json describe_tokens(std::vector<AddedToken> tokens);

// Brings `tokens`, those of the tokenizer's own file, to what transformers 5 makes of them with `config`: the config's
// flags win (but a special token stays one), new tokens follow the others, and tokens with a role are special, as are
// those in a list where the class is Qwen2's or Cohere's.
// kInvalidArgument names a token whose id in the config is not the one that transformers gives it.
Status add_configured_tokens(const TokenizerConfig& config, const Vocabulary& vocabulary,
                             std::vector<AddedToken>& tokens);

}  // namespace atl::tokenizer
