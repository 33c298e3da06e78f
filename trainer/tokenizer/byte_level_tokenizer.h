#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/byte_level_parts.h"
#include "trainer/tokenizer/pre_tokenizer.h"
#include "trainer/tokenizer/tokenizer.h"

namespace atl::tokenizer {

// A byte-level BPE tokenizer (GPT-2, OPT, Llama 3), equal to the tokenizers library with encode_special_tokens on:
// special tokens that are written out in a text stay text, other added tokens are found.
class ByteLevelTokenizer final : public Tokenizer {
  public:
    // bos and eos: the contents of the tokens that tokenizer_config.json names; empty: none.
    static Result<std::unique_ptr<ByteLevelTokenizer>> create(const ByteLevelParts& parts, const std::string& bos,
                                                              const std::string& eos);
    // Of the text of a tokenizer.json.
    static Result<std::unique_ptr<ByteLevelTokenizer>> from_json(std::string_view text, const std::string& bos,
                                                                 const std::string& eos);

    Status encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
    std::string decode(std::span<const std::int32_t> ids) const override;
    std::int32_t vocab_size() const override { return vocab_size_; }
    std::optional<std::int32_t> bos() const override { return bos_; }
    std::optional<std::int32_t> eos() const override { return eos_; }

  private:
    ByteLevelTokenizer() = default;
    Status add_vocab(const ByteLevelParts& parts);
    Status add_merges(const ByteLevelParts& parts);
    Status add_specials(const ByteLevelParts& parts, const std::string& bos, const std::string& eos);

    // Added tokens that are found in texts.
    struct AddedTokens {
        std::vector<ByteLevelParts::AddedToken> tokens;  // longest first
        std::array<bool, 256> begins{};                  // by the first byte
        void add(ByteLevelParts::AddedToken token);
        // The longest one that `text` begins with; null: none.
        const ByteLevelParts::AddedToken* at(std::string_view text) const;
        // Appends the id of each one in `text`, and has `encode_rest` append those of what lies between.
        template <class EncodeRest>
        Status encode(std::string_view text, std::vector<std::int32_t>& ids, EncodeRest&& encode_rest) const;
    };

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
