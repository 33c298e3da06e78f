#include "trainer/tokenizer/character_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "trainer/tokenizer/tokenizer_fields.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

constexpr char32_t kSpaceMarkCode = 0x2581;

char32_t last_code_point(std::string_view text) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    return first_code_point(text.substr(at)).code;
}

}  // namespace

Status CharacterTokenizer::add_vocab(const BpeParts& parts) {
    tokens_.resize(static_cast<std::size_t>(vocab_size_));
    ascii_.fill(-1);
    for (const auto& [token, id] : parts.vocab) {
        if (!is_utf8(token)) return fields::bad(parts.vocab_field, "a token is not UTF-8");
        tokens_[static_cast<std::size_t>(id)] = token;
        if (token.empty() || first_code_point(token).length != token.size()) continue;
        const char32_t code = first_code_point(token).code;
        if (code < ascii_.size())
            ascii_[code] = id;
        else
            characters_[code] = id;
    }
    for (std::size_t id = 0; id < tokens_.size(); ++id)
        if (!added_texts_[id].empty()) tokens_[id] = added_texts_[id];
    if (ignore_merges_) ids_of_ = parts.vocab;
    joins_by_spaces_ = !parts.decoder;
    decoder_ = parts.decoder.value_or(std::vector<DecoderStep>());
    ATOLL_RETURN_IF_ERROR(add_fallbacks(parts));
    add_joins(parts);
    return {};
}

Status CharacterTokenizer::add_fallbacks(const BpeParts& parts) {
    byte_fallback_ = parts.byte_fallback;
    fuse_unk_ = parts.fuse_unk;
    bool has_all_bytes = byte_fallback_;
    for (unsigned byte = 0; byte < bytes_.size(); ++byte) {
        char token[8];
        std::snprintf(token, sizeof token, "<0x%02X>", byte);
        const auto found = parts.vocab.find(token);
        bytes_[byte] = found == parts.vocab.end() ? -1 : found->second;
        has_all_bytes &= bytes_[byte] >= 0;
    }
    const auto unk = parts.vocab.find(parts.unk_token);
    const bool has_unk = !parts.unk_token.empty() && unk != parts.vocab.end();
    if (has_unk) unk_id_ = unk->second;
    // Characters that vanish bring others together, as would an unknown token that ends in a space.
    joins_unknown_ = (!has_unk && !has_all_bytes) || parts.unk_token.ends_with(kSpaceMark);
    if (!parts.unk_token.empty() && !has_unk && !has_all_bytes)
        return fields::bad("model.unk_token", "\"" + parts.unk_token + "\" is not in the vocabulary");
    return {};
}

void CharacterTokenizer::add_joins(const BpeParts& parts) {
    cuts_ = characters_.contains(kSpaceMarkCode);
    for (const auto& [left, right] : parts.merges) {
        if (left.empty() || !right.starts_with(kSpaceMark) || left.ends_with(kSpaceMark)) continue;
        joins_.insert(last_code_point(left));
        joins_unknown_ = true;
    }
}

std::int32_t CharacterTokenizer::id_of(char32_t code) const {
    if (code < ascii_.size()) return ascii_[code];
    const auto found = characters_.find(code);
    return found == characters_.end() ? -1 : found->second;
}

bool CharacterTokenizer::may_cut_behind(char32_t code) const {
    if (joins_.empty() && !joins_unknown_) return true;
    return id_of(code) < 0 ? !joins_unknown_ : !joins_.contains(code);
}

// The end of what is merged by itself at the start of `text`.
std::size_t CharacterTokenizer::segment_end(std::string_view text) const {
    if (!cuts_) return text.size();
    for (std::size_t at = 0;;) {
        while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
        at = text.find(kSpaceMark, at);
        if (at == std::string_view::npos) return text.size();
        if (may_cut_behind(last_code_point(text.substr(0, at)))) return at;
    }
}

void CharacterTokenizer::encode_words(const std::vector<std::string_view>& words,
                                      std::vector<std::int32_t>& ids) const {
    WordCache& cache = WordCache::of_this_thread(owner_);
    for (std::string_view word : words) {
        if (ignore_merges_) {
            if (const auto found = ids_of_.find(std::string(word)); found != ids_of_.end()) {
                ids.push_back(found->second);
                continue;
            }
        }
        while (!word.empty()) {
            const std::size_t end = segment_end(word);
            cache.append(word.substr(0, end), ids,
                         [this](std::string_view text, std::vector<std::int32_t>& out) { encode_segment(text, out); });
            word.remove_prefix(end);
        }
    }
}

// False, and nothing appended, where a byte is no token.
bool CharacterTokenizer::append_bytes(std::string_view character, std::vector<std::int32_t>& symbols) const {
    const auto id_of_byte = [this](char c) { return bytes_[static_cast<unsigned char>(c)]; };
    if (!std::all_of(character.begin(), character.end(), [&](char c) { return id_of_byte(c) >= 0; })) return false;
    for (const char c : character) symbols.push_back(id_of_byte(c));
    return true;
}

void CharacterTokenizer::encode_segment(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::vector<std::int32_t> symbols;
    symbols.reserve(text.size());
    bool pending = false;  // an unknown token, which the library puts before the next character that is a token
    while (!text.empty()) {
        const CodePoint next = first_code_point(text);
        const std::string_view character = text.substr(0, next.length);
        text.remove_prefix(next.length);
        if (const std::int32_t id = id_of(next.code); id >= 0) {
            if (std::exchange(pending, false)) symbols.push_back(unk_id_);
            symbols.push_back(id);
            continue;
        }
        if (byte_fallback_ && append_bytes(character, symbols)) continue;
        if (pending && !fuse_unk_) symbols.push_back(unk_id_);
        pending = unk_id_ >= 0;
    }
    if (pending) symbols.push_back(unk_id_);
    merges_.apply(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
}

std::string CharacterTokenizer::decode(std::span<const std::int32_t> ids) const {
    std::vector<std::string> tokens;
    for (const std::int32_t id : ids) {
        if (id < 0 || id >= vocab_size_ || is_special(id) || tokens_[static_cast<std::size_t>(id)].empty()) continue;
        if (joins_by_spaces_ && !tokens.empty()) tokens.emplace_back(" ");
        tokens.push_back(tokens_[static_cast<std::size_t>(id)]);
    }
    return decode_tokens(decoder_, std::move(tokens));
}

}  // namespace atl::tokenizer
