#include "trainer/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/sentencepiece_words.h"
#include "trainer/tokenizer/tokenizer_fields.h"

namespace atl::tokenizer {

SentencePieceTokenizer::SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor,
                                               std::string_view model)
    : processor_(std::move(processor)),
      words_(SentencePieceWords::make(model)),
      vocab_size_(processor_->GetPieceSize()) {}
SentencePieceTokenizer::~SentencePieceTokenizer() = default;

Result<std::unique_ptr<SentencePieceTokenizer>> SentencePieceTokenizer::from_bytes(std::string_view model,
                                                                                   const TokenizerConfig& config) {
    auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
    const auto status = processor->LoadFromSerializedProto(model);
    if (!status.ok() || processor->GetPieceSize() <= 0)
        return invalid_argument("", "not a SentencePiece model: " + status.ToString());
    std::unique_ptr<SentencePieceTokenizer> tokenizer(new SentencePieceTokenizer(std::move(processor), model));
    tokenizer->add_bos_ = false;
    tokenizer->drops_prefix_space_ = config.drops_prefix_space();
    tokenizer->legacy_ = config.legacy && !tokenizer->drops_prefix_space_;
    for (const std::string& piece : SentencePieceWords::special_pieces(model)) {
        const int id = tokenizer->processor_->PieceToId(piece);
        const bool is_control = tokenizer->processor_->IsControl(id);
        tokenizer->special_tokens_[piece] = {id, false, is_control};
        if (is_control) tokenizer->special_ids_.insert(id);
    }
    ATOLL_RETURN_IF_ERROR(tokenizer->add_tokens(config));
    ATOLL_RETURN_IF_ERROR(tokenizer->add_ends(config));
    return tokenizer;
}

std::optional<std::int32_t> SentencePieceTokenizer::id_of_piece(const std::string& text) const {
    const int id = processor_->PieceToId(text);
    return processor_->IdToPiece(id) == text ? std::optional(id) : std::nullopt;
}

Status SentencePieceTokenizer::add_tokens(const TokenizerConfig& config) {
    const Vocabulary vocabulary{[this](const std::string& token) { return id_of_piece(token); },
                                processor_->GetPieceSize()};
    std::vector<AddedToken> tokens;
    ATOLL_RETURN_IF_ERROR(add_configured_tokens(config, vocabulary, tokens));
    json::Json settings = {{"added_tokens", describe_tokens(tokens)}, {"legacy", legacy_}};
    if (drops_prefix_space_) settings["add_prefix_space"] = false;
    settings_ = settings.dump();
    for (const AddedToken& token : tokens) {
        const auto own = special_tokens_.find(token.content);
        // The library finds its user-defined pieces itself.
        if (own != special_tokens_.end() && !own->second.stays_text) continue;
        special_tokens_[token.content] = {token.id, token.lstrip || token.rstrip, token.special};
        const bool is_unknown = token.id < processor_->GetPieceSize() && processor_->IsUnknown(token.id);
        if (!token.special) special_ids_.erase(token.id);
        if (token.special && !is_unknown) special_ids_.insert(token.id);
        if (!is_unknown) added_texts_[token.id] = token.content;
        vocab_size_ = std::max(vocab_size_, token.id + 1);
        (token.normalized ? normalized_added_ : added_).add(token);
    }
    return {};
}

Status SentencePieceTokenizer::add_ends(const TokenizerConfig& config) {
    const auto find = [&](const char* role, int own, std::optional<std::int32_t>& id) -> Status {
        const std::string token = config.token_of(role, own < 0 ? "" : processor_->IdToPiece(own));
        if (token.empty()) return {};
        const auto added = special_tokens_.find(token);
        id = added != special_tokens_.end() ? std::optional(added->second.id) : id_of_piece(token);
        if (!id) return fields::bad(role, "\"" + token + "\" is no token");
        special_tokens_.try_emplace(token, SpecialToken{*id});
        return {};
    };
    ATOLL_RETURN_IF_ERROR(find("bos_token", processor_->bos_id(), bos_));
    return find("eos_token", processor_->eos_id(), eos_);
}

Status SentencePieceTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
    return encode_between_tokens(text, drops_prefix_space_, ids);
}

Status SentencePieceTokenizer::encode_behind(std::string_view text, std::vector<std::int32_t>& ids) const {
    return encode_between_tokens(text, true, ids);
}

Status SentencePieceTokenizer::encode_between_tokens(std::string_view text, bool behind,
                                                     std::vector<std::int32_t>& ids) const {
    return added_.encode(text, ids, [&](std::string_view part, std::size_t part_at) {
        return normalized_added_.encode(part, ids, [&](std::string_view rest, std::size_t at) {
            return behind || part_at + at > 0 ? encode_pieces_behind(rest, ids) : encode_pieces(rest, ids);
        });
    });
}

Status SentencePieceTokenizer::encode_pieces(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (words_ != nullptr && words_->encode(text, ids)) return {};
    std::vector<int> pieces;
    const auto status = processor_->Encode(text, &pieces);
    if (!status.ok()) return internal_error("SentencePiece cannot encode: " + status.ToString());
    ids.insert(ids.end(), pieces.begin(), pieces.end());
    return {};
}

bool SentencePieceTokenizer::adds_space() const {
    std::vector<std::string> pieces;
    return processor_->Encode("a", &pieces).ok() && !pieces.empty() && pieces[0].starts_with(kSpaceMark);
}

// `legacy` puts a space before such a text too, unless it begins with one.
Status SentencePieceTokenizer::encode_pieces_behind(std::string_view text, std::vector<std::int32_t>& ids) const {
    const bool wants_space = legacy_ && !text.starts_with(' ') && !text.starts_with(kSpaceMark);
    if (wants_space || text.empty() || !adds_space()) return encode_pieces(text, ids);
    if (words_ != nullptr && words_->encode(text, ids, false)) return {};
    return invalid_argument(
        "tokenizer",
        "tokenizer.model cannot encode a text without a space before it (behind a special token, or "
        "with add_prefix_space false): it puts one there and is not BPE of Llama's kind");
}

// The library takes one space from the front of what it decodes, which only a text's first piece has too much.
std::string SentencePieceTokenizer::decode_pieces(const std::vector<int>& pieces, bool behind) const {
    std::string text;
    const auto status = processor_->Decode(pieces, &text);
    check(status.ok(), "SentencePiece cannot decode: " + status.ToString());
    const bool took_space = behind && !pieces.empty() && adds_space() &&
                            std::string_view(processor_->IdToPiece(pieces[0])).starts_with(kSpaceMark);
    return took_space ? " " + text : text;
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
    std::string text;
    std::vector<int> pieces;
    bool behind = drops_prefix_space_;  // also behind a token that is decoded as it is written
    for (const std::int32_t id : ids) {
        if (id < 0 || id >= vocab_size_ || special_ids_.contains(id)) continue;
        const auto added = added_texts_.find(id);
        if (added == added_texts_.end() && id < processor_->GetPieceSize()) pieces.push_back(id);
        if (added == added_texts_.end()) continue;
        text += decode_pieces(std::exchange(pieces, {}), behind) + added->second;
        behind = true;
    }
    return text + decode_pieces(pieces, behind);
}

}  // namespace atl::tokenizer
