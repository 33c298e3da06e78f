#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/bpe_parts.h"
#include "trainer/tokenizer/normalizer_steps.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/word_splitter.h"

namespace atl::tokenizer {

// A BPE tokenizer of the tokenizers library, equal to it with encode_special_tokens on: special tokens that are written
// out in a text stay text, other added tokens are found. What lies between them is normalized and cut into words.
class BpeTokenizer : public Tokenizer {
  public:
    // Over bytes or over characters, as the parts say. kInvalidArgument names the member that is wrong.
    static Result<std::unique_ptr<BpeTokenizer>> create(const BpeParts& parts);
    // Of the text of a tokenizer.json, and the files beside it.
    static Result<std::unique_ptr<BpeTokenizer>> from_json(std::string_view text, const TokenizerConfig& config);

    Status encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
    Status encode_behind(std::string_view text, std::vector<std::int32_t>& ids) const override;
    std::int32_t vocab_size() const override { return vocab_size_; }
    std::optional<std::int32_t> bos() const override { return bos_; }
    std::optional<std::int32_t> eos() const override { return eos_; }

  protected:
    BpeTokenizer() : owner_(WordCache::next_owner()) {}
    // The vocabulary and what is to be known before it is used.
    virtual Status add_vocab(const BpeParts& parts) = 0;
    virtual void encode_words(const std::vector<std::string_view>& words, std::vector<std::int32_t>& ids) const = 0;
    bool is_special(std::int32_t id) const { return special_ids_.contains(id); }

    BpeMerges merges_;
    bool ignore_merges_ = false;
    std::int32_t vocab_size_ = 0;
    std::vector<std::string> added_texts_;  // of added tokens, as they are decoded, by id; empty: no added token
    std::uint64_t owner_;                   // of the cache of words

  private:
    Status add_parts(const BpeParts& parts);
    Status add_tokens(const BpeParts& parts);
    Status add_merges(const BpeParts& parts);
    Status add_ends(const BpeParts& parts);
    Status encode_between(std::string_view text, bool behind, std::vector<std::int32_t>& ids) const;
    Status encode_raw(std::string_view text, std::size_t origin_bytes, std::vector<std::int32_t>& ids) const;
    Status encode_normalized(std::string_view text, std::size_t origin_bytes, std::vector<std::int32_t>& ids) const;

    AddedTokens added_;             // in the text as it is
    AddedTokens normalized_added_;  // then in the normalized text between them
    Normalizer normalizer_;
    WordSplitter splitter_;
    std::unordered_set<std::int32_t> special_ids_;
    std::optional<std::int32_t> bos_;
    std::optional<std::int32_t> eos_;
};

}  // namespace atl::tokenizer
