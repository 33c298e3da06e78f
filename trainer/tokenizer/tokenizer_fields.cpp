#include "trainer/tokenizer/tokenizer_fields.h"

namespace atl::tokenizer::fields {
namespace {

constexpr std::int64_t kTokenIdMax = 10'000'000;

std::optional<std::int32_t> token_id(const json::Json& value) {
    if (!value.is_number_integer()) return std::nullopt;
    const auto id = value.get<std::int64_t>();
    return id >= 0 && id <= kTokenIdMax ? std::optional(static_cast<std::int32_t>(id)) : std::nullopt;
}

}  // namespace

const json::Json& member(const json::Json& object, const char* key) {
    static const json::Json null;
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
}

bool is_true(const json::Json& value) {
    return value.is_boolean() && value.get<bool>();
}

std::string text_or_empty(const json::Json& value) {
    return value.is_string() ? value.get<std::string>() : std::string();
}

std::string token_text(const json::Json& value) {
    return text_or_empty(value.is_object() ? member(value, "content") : value);
}

Error bad(const std::string& field, const std::string& what) {
    return invalid_argument(field, field + ": " + what);
}

Status read_vocab(const json::Json& vocab, const std::string& field, BpeParts& parts) {
    for (const auto& [token, value] : vocab.items()) {
        const auto id = token_id(value);
        if (!id) return bad(field, "the id of \"" + token + "\" is no sensible number");
        parts.vocab.emplace(token, *id);
    }
    return {};
}

Result<AddedToken> read_added_token(const json::Json& token, const json::Json& id, const std::string& field) {
    const auto number = token_id(id);
    const std::string content = text_or_empty(member(token, "content"));
    if (!number || content.empty()) return bad(field, "an entry lacks its id or content");
    const bool special = is_true(member(token, "special"));
    if (!special && is_true(member(token, "single_word")))
        return bad(field, "\"" + content + "\" has single_word, which is not supported");
    const json::Json& normalized = member(token, "normalized");
    return AddedToken{.id = *number,
                      .content = content,
                      .special = special,
                      .normalized = normalized.is_null() ? !special : is_true(normalized),
                      .lstrip = is_true(member(token, "lstrip")),
                      .rstrip = is_true(member(token, "rstrip"))};
}

}  // namespace atl::tokenizer::fields
