#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/byte_level_parts.h"
#include "trainer/tokenizer/pre_tokenizer.h"
#include "trainer/tokenizer/tokenizer.h"

namespace atl::tokenizer {

// A byte-level BPE tokenizer (GPT-2, OPT, Llama 3), equal to the tokenizers library with encode_special_tokens on:
// special tokens that are written out in a text stay text, other added tokens are found.
class ByteLevelTokenizer final : public Tokenizer {
  public:
    static Result<std::unique_ptr<ByteLevelTokenizer>> create(const ByteLevelParts& parts);
    // Of the text of a tokenizer.json, and the files beside it.
    static Result<std::unique_ptr<ByteLevelTokenizer>> from_json(std::string_view text, const TokenizerConfig& config);

    Status encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
    std::string decode(std::span<const std::int32_t> ids) const override;
    std::int32_t vocab_size() const override { return vocab_size_; }
    std::optional<std::int32_t> bos() const override { return bos_; }
    std::optional<std::int32_t> eos() const override { return eos_; }

  private:
    ByteLevelTokenizer() = default;
    Status add_vocab(const ByteLevelParts& parts);
    Status add_merges(const ByteLevelParts& parts);
    Status add_ends(const ByteLevelParts& parts);
    std::string normalized_text(std::string_view text) const;
    Status encode_raw(std::string_view text, std::vector<std::int32_t>& ids) const;
    Status encode_text(std::string_view text, std::vector<std::int32_t>& ids) const;
    void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

    std::vector<std::string> bytes_of_;  // of each id
    std::unordered_map<std::string, std::int32_t> ids_of_;
    std::array<std::int32_t, 256> byte_ids_{};
    BpeMerges merges_;
    bool ignore_merges_ = false;
    bool add_prefix_space_ = false;
    std::vector<PreTokenizer> splits_;
    AddedTokens added_;             // in the text as it is
    AddedTokens normalized_added_;  // then in the normalized text between them
    std::vector<NormalForm> normalizers_;
    std::unordered_set<std::int32_t> special_ids_;
    std::int32_t vocab_size_ = 0;
    std::optional<std::int32_t> bos_;
    std::optional<std::int32_t> eos_;
    std::uint64_t owner_ = 0;
};

}  // namespace atl::tokenizer
