#include "trainer/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/byte_level_tokenizer.h"
#include "trainer/tokenizer/character_tokenizer.h"
#include "trainer/tokenizer/tokenizer_fields.h"
#include "trainer/tokenizer/tokenizer_json.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

// What tokenizer_config.json and added_tokens.json may decide.
std::string describe_settings(const BpeParts& parts) {
    json::Json settings = {{"add_prefix_space", parts.add_prefix_space},
                           {"added_tokens", describe_tokens(parts.added_tokens)}};
    if (parts.drops_prefix_space) settings["drops_prefix_space"] = true;
    return settings.dump();
}

}  // namespace

Result<std::unique_ptr<BpeTokenizer>> BpeTokenizer::from_json(std::string_view text, const TokenizerConfig& config) {
    ATOLL_TRY(BpeParts parts, parse_tokenizer_json(text));
    ATOLL_RETURN_IF_ERROR(apply_config(config, parts));
    return create(parts);
}

Result<std::unique_ptr<BpeTokenizer>> BpeTokenizer::create(const BpeParts& parts) {
    std::unique_ptr<BpeTokenizer> tokenizer;
    if (parts.is_byte_level())
        tokenizer = std::make_unique<ByteLevelTokenizer>();
    else
        tokenizer = std::make_unique<CharacterTokenizer>();
    ATOLL_RETURN_IF_ERROR(tokenizer->add_parts(parts));
    return tokenizer;
}

Status BpeTokenizer::add_parts(const BpeParts& parts) {
    ignore_merges_ = parts.ignore_merges;
    for (const auto& [token, id] : parts.vocab) vocab_size_ = std::max(vocab_size_, id + 1);
    for (const auto& token : parts.added_tokens) vocab_size_ = std::max(vocab_size_, token.id + 1);
    ATOLL_TRY(normalizer_, Normalizer::create(parts.normalizer));
    ATOLL_TRY(splitter_, WordSplitter::create(parts.pre_tokenizer, parts.add_prefix_space));
    ATOLL_RETURN_IF_ERROR(add_tokens(parts));
    ATOLL_RETURN_IF_ERROR(add_vocab(parts));
    ATOLL_RETURN_IF_ERROR(add_merges(parts));
    ATOLL_RETURN_IF_ERROR(add_ends(parts));
    add_bos_ = !parts.first_token.empty();
    settings_ = describe_settings(parts);
    return {};
}

Status BpeTokenizer::add_tokens(const BpeParts& parts) {
    added_texts_.resize(static_cast<std::size_t>(vocab_size_));
    for (AddedToken token : parts.added_tokens) {
        special_tokens_[token.content] = {token.id, token.lstrip || token.rstrip, token.special};
        std::size_t origin_bytes = 0;
        const std::string content = token.content;
        if (token.normalized) ATOLL_RETURN_IF_ERROR(normalizer_.apply(token.content, origin_bytes));
        if (token.content.empty())
            return fields::bad("added_tokens", "the normalizer leaves nothing of \"" + content + "\"");
        added_texts_[static_cast<std::size_t>(token.id)] = token.content;
        if (token.special) special_ids_.insert(token.id);
        (token.normalized ? normalized_added_ : added_).add(std::move(token));
    }
    return {};
}

Status BpeTokenizer::add_merges(const BpeParts& parts) {
    for (std::size_t rank = 0; rank < parts.merges.size(); ++rank) {
        const auto& [left, right] = parts.merges[rank];
        const auto left_id = parts.vocab.find(left);
        const auto right_id = parts.vocab.find(right);
        const auto merged = parts.vocab.find(left + right);
        if (left_id == parts.vocab.end() || right_id == parts.vocab.end() || merged == parts.vocab.end())
            return fields::bad(parts.merges_field,
                               "entry " + std::to_string(rank) + " names a token that is not in the vocabulary");
        merges_.add(left_id->second, right_id->second, static_cast<std::int32_t>(rank), merged->second);
    }
    return {};
}

Status BpeTokenizer::add_ends(const BpeParts& parts) {
    const auto find_id = [&](const std::string& content) -> std::optional<std::int32_t> {
        for (const auto& token : parts.added_tokens)
            if (token.content == content) return token.id;
        const auto found = parts.vocab.find(content);
        return found == parts.vocab.end() ? std::nullopt : std::optional(found->second);
    };
    const std::string& first = parts.first_token.empty() ? parts.bos : parts.first_token;
    if (!first.empty() && !(bos_ = find_id(first))) return fields::bad("bos_token", "\"" + first + "\" is no token");
    if (!parts.eos.empty() && !(eos_ = find_id(parts.eos)))
        return fields::bad("eos_token", "\"" + parts.eos + "\" is no token");
    if (bos_) special_tokens_.try_emplace(first, SpecialToken{*bos_});
    if (eos_) special_tokens_.try_emplace(parts.eos, SpecialToken{*eos_});
    return {};
}

Status BpeTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
    return encode_between(text, false, ids);
}

Status BpeTokenizer::encode_behind(std::string_view text, std::vector<std::int32_t>& ids) const {
    return encode_between(text, true, ids);
}

Status BpeTokenizer::encode_between(std::string_view text, bool behind, std::vector<std::int32_t>& ids) const {
    if (!is_utf8(text)) return encode_between(with_utf8_replaced(text), behind, ids);
    return added_.encode(text, ids, [&](std::string_view rest, std::size_t at) {
        return encode_raw(rest, behind || at > 0 ? 0 : first_code_point(rest).length, ids);
    });
}

Status BpeTokenizer::encode_raw(std::string_view text, std::size_t origin_bytes, std::vector<std::int32_t>& ids) const {
    std::string storage;
    if (!normalizer_.empty()) {
        storage = text;
        ATOLL_RETURN_IF_ERROR(normalizer_.apply(storage, origin_bytes));
        text = storage;
    }
    return normalized_added_.encode(text, ids, [&](std::string_view rest, std::size_t at) {
        return encode_normalized(rest, origin_bytes > at ? origin_bytes - at : 0, ids);
    });
}

Status BpeTokenizer::encode_normalized(std::string_view text, std::size_t origin_bytes,
                                       std::vector<std::int32_t>& ids) const {
    if (text.empty()) return {};
    WordSplitter::Words words;
    ATOLL_RETURN_IF_ERROR(splitter_.split(text, origin_bytes, words));
    encode_words(words.list, ids);
    return {};
}

}  // namespace atl::tokenizer
