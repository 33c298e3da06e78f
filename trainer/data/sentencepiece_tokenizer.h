#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "trainer/data/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace atl::data {

// A SentencePiece model (https://github.com/google/sentencepiece), by the SentencePiece library itself.
class SentencePieceTokenizer final : public Tokenizer {
  public:
    static Result<std::unique_ptr<SentencePieceTokenizer>> from_bytes(std::string_view model);
    ~SentencePieceTokenizer() override;

    void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
    std::string decode(std::span<const std::int32_t> ids) const override;
    std::int32_t vocab_size() const override;
    std::optional<std::int32_t> bos() const override;
    std::optional<std::int32_t> eos() const override;

  private:
    explicit SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor);
    std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

}  // namespace atl::data
