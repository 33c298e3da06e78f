#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shared/base/result.h"
#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/decoder_steps.h"
#include "trainer/tokenizer/normalizer_steps.h"
#include "trainer/tokenizer/tokenizer_config.h"
#include "trainer/tokenizer/word_splitter.h"

namespace atl::tokenizer {

// What a BPE tokenizer is made of, whichever files it came in.
struct BpeParts {
    std::unordered_map<std::string, std::int32_t> vocab;  // of bytes in GPT-2's alphabet where ByteLevel is a step
    std::vector<std::pair<std::string, std::string>> merges;
    bool ignore_merges = false;  // a word that is a token stands for itself
    // Of merges over characters: what stands for one that is no token.
    bool byte_fallback = false;  // the tokens "<0x0A>" of its bytes, if all of them are there
    std::string unk_token;       // else this one; empty: nothing
    bool fuse_unk = false;       // one for neighbours
    std::vector<AddedToken> added_tokens;
    std::vector<NormalizerStep> normalizer;
    std::vector<PreTokenizerStep> pre_tokenizer;
    std::optional<std::vector<DecoderStep>> decoder;  // nothing: a space comes between tokens
    bool add_prefix_space = false;                    // of ByteLevel
    bool drops_prefix_space = false;                  // of a Prepend or Metaspace, as the files beside say
    std::string first_token;                          // that is put in front of a text; empty: none
    std::string bos;                                  // the tokens with these roles; empty: none
    std::string eos;
    // Where vocabulary and merges stand, for messages.
    const char* vocab_field = "model.vocab";
    const char* merges_field = "model.merges";

    // Whether the merges are over bytes, not over characters.
    bool is_byte_level() const;
    // Whether the steps before the merges are those that LlamaTokenizer of transformers 5 brings, and saves.
    bool has_llama_steps(bool legacy) const;
};

// Brings the parts to what transformers 5 makes of them with the files beside the tokenizer's own. kInvalidArgument
// names the member that contradicts them.
Status apply_config(const TokenizerConfig& config, BpeParts& parts);

}  // namespace atl::tokenizer
