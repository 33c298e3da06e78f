#include "trainer/tokenizer/byte_level_tokenizer.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/tokenizer_fields.h"
#include "trainer/tokenizer/tokenizer_json.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

// GPT-2 writes bytes as characters that print: themselves where they do, else U+0100 and on.
// Index: the byte; value: its character.
std::array<char32_t, 256> make_alphabet() {
    std::array<char32_t, 256> alphabet{};
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        alphabet[byte] = prints ? static_cast<char32_t>(byte) : next++;
    }
    return alphabet;
}

// The bytes that a token in GPT-2's alphabet stands for; nothing when a character is not of the alphabet.
std::optional<std::string> bytes_of_token(std::string_view token) {
    static const std::array<char32_t, 256> alphabet = make_alphabet();
    std::string bytes;
    while (!token.empty()) {
        const int length = utf8_length(token);
        if (length == 0 || length > 2) return std::nullopt;
        const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(token[i]); };
        const char32_t character =
            length == 1 ? byte(0) : static_cast<char32_t>((byte(0) & 0x1f) << 6 | (byte(1) & 0x3f));
        const auto* found = std::find(alphabet.begin(), alphabet.end(), character);
        if (found == alphabet.end()) return std::nullopt;
        bytes.push_back(static_cast<char>(found - alphabet.begin()));
        token.remove_prefix(static_cast<std::size_t>(length));
    }
    return bytes;
}

// What tokenizer_config.json and added_tokens.json may decide.
std::string describe_settings(const ByteLevelParts& parts) {
    return json::Json{{"add_prefix_space", parts.add_prefix_space},
                      {"added_tokens", describe_tokens(parts.added_tokens)}}
        .dump();
}

}  // namespace

Result<std::unique_ptr<ByteLevelTokenizer>> ByteLevelTokenizer::from_json(std::string_view text,
                                                                          const TokenizerConfig& config) {
    ATOLL_TRY(ByteLevelParts parts, parse_tokenizer_json(text));
    ATOLL_RETURN_IF_ERROR(apply_config(config, parts));
    return create(parts);
}

Result<std::unique_ptr<ByteLevelTokenizer>> ByteLevelTokenizer::create(const ByteLevelParts& parts) {
    std::unique_ptr<ByteLevelTokenizer> tokenizer(new ByteLevelTokenizer());
    tokenizer->owner_ = WordCache::next_owner();
    tokenizer->ignore_merges_ = parts.ignore_merges;
    tokenizer->add_prefix_space_ = parts.add_prefix_space;
    tokenizer->normalizers_ = parts.normalizers;
    for (const std::string& expression : parts.split_expressions) {
        ATOLL_TRY(PreTokenizer split, PreTokenizer::compile(expression));
        tokenizer->splits_.push_back(std::move(split));
    }
    ATOLL_RETURN_IF_ERROR(tokenizer->add_vocab(parts));
    ATOLL_RETURN_IF_ERROR(tokenizer->add_merges(parts));
    ATOLL_RETURN_IF_ERROR(tokenizer->add_ends(parts));
    tokenizer->add_bos_ = !parts.first_token.empty();
    tokenizer->settings_ = describe_settings(parts);
    return tokenizer;
}

Status ByteLevelTokenizer::add_vocab(const ByteLevelParts& parts) {
    for (const auto& [token, id] : parts.vocab) vocab_size_ = std::max(vocab_size_, id + 1);
    for (const auto& token : parts.added_tokens) vocab_size_ = std::max(vocab_size_, token.id + 1);
    bytes_of_.resize(static_cast<std::size_t>(vocab_size_));
    byte_ids_.fill(-1);
    for (const auto& [token, id] : parts.vocab) {
        auto bytes = bytes_of_token(token);
        // Tokens of another alphabet can only be whole: added ones, which stand in added_tokens too.
        if (!bytes) continue;
        if (bytes->size() == 1) byte_ids_[static_cast<unsigned char>((*bytes)[0])] = id;
        bytes_of_[static_cast<std::size_t>(id)] = *bytes;
        ids_of_.emplace(std::move(*bytes), id);
    }
    for (AddedToken token : parts.added_tokens) {
        special_tokens_[token.content] = {token.id, token.lstrip || token.rstrip, token.special};
        if (token.normalized) token.content = normalized_text(token.content);
        bytes_of_[static_cast<std::size_t>(token.id)] = token.content;
        if (token.special) special_ids_.insert(token.id);
        (token.normalized ? normalized_added_ : added_).add(std::move(token));
    }
    const auto* missing = std::find(byte_ids_.begin(), byte_ids_.end(), -1);
    if (missing == byte_ids_.end()) return {};
    return fields::bad(parts.vocab_field, "the byte " + std::to_string(missing - byte_ids_.begin()) + " has no token");
}

Status ByteLevelTokenizer::add_merges(const ByteLevelParts& parts) {
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

Status ByteLevelTokenizer::add_ends(const ByteLevelParts& parts) {
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

Status ByteLevelTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (!is_utf8(text)) return encode(with_utf8_replaced(text), ids);
    return added_.encode(text, ids, [&](std::string_view rest, std::size_t) { return encode_raw(rest, ids); });
}

Status ByteLevelTokenizer::encode_raw(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::string storage;
    if (!normalizers_.empty()) text = storage = normalized_text(text);
    return normalized_added_.encode(text, ids,
                                    [&](std::string_view rest, std::size_t) { return encode_text(rest, ids); });
}

std::string ByteLevelTokenizer::normalized_text(std::string_view text) const {
    std::string result(text);
    for (const NormalForm form : normalizers_) result = normalized(result, form);
    return result;
}

Status ByteLevelTokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (text.empty()) return {};
    std::string prefixed;
    if (add_prefix_space_ && text[0] != ' ') text = prefixed.append(" ").append(text);
    std::vector<std::string_view> words = {text};
    std::vector<std::string_view> parts;
    for (const PreTokenizer& split : splits_) {
        parts.clear();
        for (const std::string_view word : words) ATOLL_RETURN_IF_ERROR(split.split(word, parts));
        words.swap(parts);
    }
    WordCache& cache = WordCache::of_this_thread(owner_);
    for (const std::string_view word : words)
        cache.append(word, ids, [this](std::string_view text_of_word, std::vector<std::int32_t>& out) {
            encode_word(text_of_word, out);
        });
    return {};
}

void ByteLevelTokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (ignore_merges_) {
        if (const auto found = ids_of_.find(std::string(word)); found != ids_of_.end())
            return ids.push_back(found->second);
    }
    std::vector<std::int32_t> symbols;
    for (const char c : word) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    merges_.apply(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
}

std::string ByteLevelTokenizer::decode(std::span<const std::int32_t> ids) const {
    std::string bytes;
    for (const std::int32_t id : ids)
        if (id >= 0 && id < vocab_size_ && !special_ids_.contains(id)) bytes += bytes_of_[static_cast<std::size_t>(id)];
    return with_utf8_replaced(bytes);
}

}  // namespace atl::tokenizer
