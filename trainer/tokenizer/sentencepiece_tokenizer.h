#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/tokenizer_config.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace atl::tokenizer {

class SentencePieceWords;

// A SentencePiece model (https://github.com/google/sentencepiece). The library loads, checks and decodes; models of
// Llama's kind are encoded word by word with a cache, which gives the same ids many times faster. Tokens that the files
// beside the model add are found before, as in transformers.
class SentencePieceTokenizer final : public Tokenizer {
  public:
    static Result<std::unique_ptr<SentencePieceTokenizer>> from_bytes(std::string_view model,
                                                                      const TokenizerConfig& config);
    ~SentencePieceTokenizer() override;

    Status encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
    Status encode_behind(std::string_view text, std::vector<std::int32_t>& ids) const override;
    std::string decode(std::span<const std::int32_t> ids) const override;
    std::int32_t vocab_size() const override { return vocab_size_; }
    std::optional<std::int32_t> bos() const override { return bos_; }
    std::optional<std::int32_t> eos() const override { return eos_; }

  private:
    SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor, std::string_view model);
    std::optional<std::int32_t> id_of_piece(const std::string& text) const;
    Status add_tokens(const TokenizerConfig& config);
    Status add_ends(const TokenizerConfig& config);

    bool adds_space() const;  // before a text, as the model says
    // `behind`: the text follows a token.
    Status encode_between_tokens(std::string_view text, bool behind, std::vector<std::int32_t>& ids) const;
    Status encode_pieces(std::string_view text, std::vector<std::int32_t>& ids) const;
    Status encode_pieces_behind(std::string_view text, std::vector<std::int32_t>& ids) const;
    std::string decode_pieces(const std::vector<int>& pieces, bool behind) const;

    bool legacy_ = false;
    bool drops_prefix_space_ = false;  // a text begins as one behind a token does
    std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
    std::unique_ptr<SentencePieceWords> words_;                  // null: the library encodes
    AddedTokens added_;                                          // in the text as it is
    AddedTokens normalized_added_;                               // then in what lies between them
    std::unordered_map<std::int32_t, std::string> added_texts_;  // of tokens that are decoded as they are written
    std::unordered_set<std::int32_t> special_ids_;
    std::int32_t vocab_size_ = 0;
    std::optional<std::int32_t> bos_;
    std::optional<std::int32_t> eos_;
};

}  // namespace atl::tokenizer
