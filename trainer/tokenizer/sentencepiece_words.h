#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/bpe_parts.h"

namespace atl::tokenizer {

// Encodes with a SentencePiece BPE model word by word: the same ids as the library's encoder, which merges over the
// whole text, because no piece of such a model reaches over the start of a word. Immutable: any number of threads.
class SentencePieceWords {
  public:
    // Nothing when the model is not of this kind (unigram, a normaliser, user-defined pieces, no byte fallback, a piece
    // over a word boundary): the library encodes then. `model` is a serialised ModelProto.
    static std::unique_ptr<SentencePieceWords> make(std::string_view model);

    // The control and the user-defined pieces of a model.
    static std::vector<std::string> special_pieces(std::string_view model);

    // Whether a tokenizer.json has the model's ids and merges, so that both cut words alike. Its merges may make pieces
    // besides that are no words (control pieces).
    static bool are_of(std::string_view model, const BpeParts& json);

    // False, and nothing appended, when the text is not UTF-8: the library decides then what it stands for.
    // `space_before`: as the library puts one before a text.
    bool encode(std::string_view text, std::vector<std::int32_t>& ids, bool space_before = true) const;

  private:
    SentencePieceWords() = default;
    void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

    BpeMerges merges_;
    std::unordered_map<std::string, std::int32_t> characters_;
    std::array<std::int32_t, 256> bytes_{};
    std::uint64_t owner_ = 0;
};

}  // namespace atl::tokenizer
