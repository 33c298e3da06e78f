#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/tokenizer/bpe_tokenizer.h"

namespace atl::tokenizer {

// BPE over bytes: ByteLevel is a step of the pre-tokenizer (GPT-2, OPT, Llama 3, DeepSeek). Made by
// BpeTokenizer::create().
class ByteLevelTokenizer final : public BpeTokenizer {
  public:
    std::string decode(std::span<const std::int32_t> ids) const override;

  private:
    Status add_vocab(const BpeParts& parts) override;
    void encode_words(const std::vector<std::string_view>& words, std::vector<std::int32_t>& ids) const override;
    void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

    std::vector<std::string> bytes_of_;  // of each id
    std::unordered_map<std::string, std::int32_t> ids_of_;
    std::array<std::int32_t, 256> byte_ids_{};
};

}  // namespace atl::tokenizer
