#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace atl::tokenizer {

class SentencePieceWords;

// A SentencePiece model (https://github.com/google/sentencepiece). The library loads, checks and decodes; models of
// Llama's kind are encoded word by word with a cache, which gives the same ids many times faster.
class SentencePieceTokenizer final : public Tokenizer {
  public:
    static Result<std::unique_ptr<SentencePieceTokenizer>> from_bytes(std::string_view model, bool legacy);
    ~SentencePieceTokenizer() override;

    Status encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
    Status encode_behind(std::string_view text, std::vector<std::int32_t>& ids) const override;
    std::string decode(std::span<const std::int32_t> ids) const override;
    std::int32_t vocab_size() const override;
    std::optional<std::int32_t> bos() const override;
    std::optional<std::int32_t> eos() const override;

  private:
    SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor, std::string_view model);
    bool adds_space() const;  // before a text

    bool legacy_ = false;
    std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
    std::unique_ptr<SentencePieceWords> words_;  // null: the library encodes
};

}  // namespace atl::tokenizer
