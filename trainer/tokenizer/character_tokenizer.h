#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trainer/tokenizer/bpe_tokenizer.h"

namespace atl::tokenizer {

// BPE over characters, with bytes or an unknown token for those that are no token: the tokenizer.json of what
// SentencePiece made (Llama 2, Mistral, TinyLlama, Gemma). Made by BpeTokenizer::create().
class CharacterTokenizer final : public BpeTokenizer {
  public:
    std::string decode(std::span<const std::int32_t> ids) const override;

  private:
    Status add_vocab(const BpeParts& parts) override;
    Status add_fallbacks(const BpeParts& parts);
    void add_joins(const BpeParts& parts);
    void encode_words(const std::vector<std::string_view>& words, std::vector<std::int32_t>& ids) const override;
    void encode_segment(std::string_view text, std::vector<std::int32_t>& ids) const;
    std::size_t segment_end(std::string_view text) const;
    bool may_cut_behind(char32_t code) const;
    std::int32_t id_of(char32_t code) const;
    bool append_bytes(std::string_view character, std::vector<std::int32_t>& symbols) const;

    std::vector<std::string> tokens_;                        // by id
    std::unordered_map<std::string, std::int32_t> ids_of_;   // where merges are ignored
    std::array<std::int32_t, 128> ascii_{};                  // the tokens that are one character; -1: none
    std::unordered_map<char32_t, std::int32_t> characters_;  // the others of them
    bool byte_fallback_ = false;
    std::array<std::int32_t, 256> bytes_{};  // the tokens "<0x0A>"; -1: none
    std::int32_t unk_id_ = -1;
    bool fuse_unk_ = false;
    std::vector<DecoderStep> decoder_;
    bool joins_by_spaces_ = false;  // there is no decoder

    // Words are merged segment by segment, which is faster and gives the same: a segment ends before a U+2581 behind
    // another character, unless a merge reaches over that place.
    bool cuts_ = false;                   // U+2581 is a token
    std::unordered_set<char32_t> joins_;  // characters that a merge joins with a U+2581 behind them
    bool joins_unknown_ = false;          // a merge may join what stands for an unknown character with it
};

}  // namespace atl::tokenizer
