#include "trainer/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "trainer/tokenizer/sentencepiece_words.h"

namespace atl::tokenizer {

SentencePieceTokenizer::SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor,
                                               std::string_view model)
    : processor_(std::move(processor)), words_(SentencePieceWords::make(model)) {}
SentencePieceTokenizer::~SentencePieceTokenizer() = default;

Result<std::unique_ptr<SentencePieceTokenizer>> SentencePieceTokenizer::from_bytes(std::string_view model,
                                                                                   bool legacy) {
    auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
    const auto status = processor->LoadFromSerializedProto(model);
    if (!status.ok() || processor->GetPieceSize() <= 0)
        return invalid_argument("", "not a SentencePiece model: " + status.ToString());
    std::unique_ptr<SentencePieceTokenizer> tokenizer(new SentencePieceTokenizer(std::move(processor), model));
    tokenizer->legacy_ = legacy;
    for (const std::string& piece : SentencePieceWords::special_pieces(model)) {
        const int id = tokenizer->processor_->PieceToId(piece);
        tokenizer->special_tokens_[piece] = {id, false, tokenizer->processor_->IsControl(id)};
    }
    return tokenizer;
}

Status SentencePieceTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (words_ != nullptr && words_->encode(text, ids)) return {};
    std::vector<int> pieces;
    const auto status = processor_->Encode(text, &pieces);
    if (!status.ok()) return internal_error("SentencePiece cannot encode: " + status.ToString());
    ids.insert(ids.end(), pieces.begin(), pieces.end());
    return {};
}

bool SentencePieceTokenizer::adds_space() const {
    std::vector<std::string> pieces;
    return processor_->Encode("a", &pieces).ok() && !pieces.empty() && pieces[0].starts_with("\u2581");
}

Status SentencePieceTokenizer::encode_behind(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (legacy_ || text.empty() || !adds_space()) return encode(text, ids);
    if (words_ != nullptr && words_->encode(text, ids, false)) return {};
    return invalid_argument("tokenizer",
                            "tokenizer.model cannot encode a text behind a special token: it puts a space before texts "
                            "and is not BPE of Llama's kind");
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
    std::vector<int> pieces;
    for (const std::int32_t id : ids)
        if (id >= 0 && id < vocab_size() && !processor_->IsControl(id)) pieces.push_back(id);
    std::string text;
    const auto status = processor_->Decode(pieces, &text);
    check(status.ok(), "SentencePiece cannot decode: " + status.ToString());
    return text;
}

std::int32_t SentencePieceTokenizer::vocab_size() const {
    return processor_->GetPieceSize();
}

std::optional<std::int32_t> SentencePieceTokenizer::bos() const {
    const int id = processor_->bos_id();
    return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<std::int32_t> SentencePieceTokenizer::eos() const {
    const int id = processor_->eos_id();
    return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace atl::tokenizer
