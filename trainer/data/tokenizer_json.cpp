#include "trainer/data/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "shared/json/json.h"
#include "trainer/data/pre_tokenizer.h"

namespace atl::data {
namespace {

using json::Json;

constexpr std::int64_t kIdMax = 10'000'000;

Error bad(const std::string& field, const std::string& what) {
    return invalid_argument(field, field + ": " + what);
}

const Json& member(const Json& object, const char* key) {
    static const Json null;
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
}

bool is_true(const Json& value) {
    return value.is_boolean() && value.get<bool>();
}

bool is_set(const Json& value) {
    return !value.is_null() && value != Json(false) && value != Json("") && value != Json(0.0);
}

std::string text_or_empty(const Json& value) {
    return value.is_string() ? value.get<std::string>() : std::string();
}

std::optional<std::int32_t> id_of(const Json& value) {
    if (!value.is_number_integer()) return std::nullopt;
    const auto id = value.get<std::int64_t>();
    return id >= 0 && id <= kIdMax ? std::optional(static_cast<std::int32_t>(id)) : std::nullopt;
}

// "a b" (older files) or ["a", "b"].
std::optional<std::pair<std::string, std::string>> merge_of(const Json& value) {
    if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
        return std::pair(value[0].get<std::string>(), value[1].get<std::string>());
    if (!value.is_string()) return std::nullopt;
    const std::string text = value.get<std::string>();
    const auto space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return std::nullopt;
    return std::pair(text.substr(0, space), text.substr(space + 1));
}

Status read_model(const Json& model, TokenizerJson& result) {
    if (!model.is_object()) return bad("model", "is missing or no object");
    if (const std::string type = text_or_empty(member(model, "type")); type != "BPE" && !type.empty())
        return bad("model.type", "\"" + type + "\" is not supported, only BPE is");
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "fuse_unk"})
        if (is_set(member(model, key))) return bad(std::string("model.") + key, "is not supported");
    result.ignore_merges = is_true(member(model, "ignore_merges"));
    if (!member(model, "vocab").is_object() || !member(model, "merges").is_array())
        return bad("model", "vocab or merges is missing");
    for (const auto& [token, value] : member(model, "vocab").items()) {
        const auto id = id_of(value);
        if (!id) return bad("model.vocab", "the id of \"" + token + "\" is no sensible number");
        result.vocab.emplace(token, *id);
    }
    for (const Json& value : member(model, "merges")) {
        auto merge = merge_of(value);
        if (!merge) return bad("model.merges", "entry " + std::to_string(result.merges.size()) + " is no pair");
        result.merges.push_back(std::move(*merge));
    }
    return {};
}

Status read_added_tokens(const Json& tokens, TokenizerJson& result) {
    if (tokens.is_null()) return {};
    if (!tokens.is_array()) return bad("added_tokens", "is no array");
    for (const Json& token : tokens) {
        const auto id = id_of(member(token, "id"));
        const std::string content = text_or_empty(member(token, "content"));
        if (!id || content.empty()) return bad("added_tokens", "an entry lacks its id or content");
        const bool special = is_true(member(token, "special"));
        for (const char* key : {"lstrip", "rstrip", "single_word"})
            if (!special && is_true(member(token, key)))
                return bad("added_tokens", "\"" + content + "\" has " + key + ", which is not supported");
        result.added_tokens.push_back({*id, content, special});
    }
    return {};
}

Status read_byte_level(const Json& step, bool alone, TokenizerJson& result) {
    result.add_prefix_space = is_true(member(step, "add_prefix_space"));
    if (result.add_prefix_space && !alone)
        return bad("pre_tokenizer", "add_prefix_space after another step is not supported");
    // Absent means true, as in files from before the option.
    if (!member(step, "use_regex").is_boolean() || is_true(member(step, "use_regex")))
        result.split_expressions.emplace_back(kGpt2Expression);
    return {};
}

Status read_pre_tokenizer(const Json& pre_tokenizer, TokenizerJson& result) {
    const bool sequence = text_or_empty(member(pre_tokenizer, "type")) == "Sequence";
    const Json steps = sequence ? member(pre_tokenizer, "pretokenizers") : Json::array({pre_tokenizer});
    bool byte_level = false;
    for (const Json& step : steps) {
        const std::string type = text_or_empty(member(step, "type"));
        if (byte_level) return bad("pre_tokenizer", "a step after ByteLevel is not supported");
        if (type == "ByteLevel") {
            byte_level = true;
            ATOLL_RETURN_IF_ERROR(read_byte_level(step, steps.size() == 1, result));
        } else if (type == "Split") {
            const Json& expression = member(member(step, "pattern"), "Regex");
            if (!expression.is_string() || member(step, "behavior") != "Isolated" || is_true(member(step, "invert")))
                return bad("pre_tokenizer", "a Split that isn't by a Regex with behaviour Isolated is not supported");
            result.split_expressions.push_back(expression.get<std::string>());
        } else {
            return bad("pre_tokenizer", "the type \"" + type + "\" is not supported");
        }
    }
    return byte_level ? Status() : bad("pre_tokenizer", "only byte-level tokenizers are supported (no ByteLevel step)");
}

// The special token that a TemplateProcessing puts before the text.
std::string first_token_of(const Json& post_processor) {
    const std::string type = text_or_empty(member(post_processor, "type"));
    if (type == "Sequence") {
        for (const Json& step : member(post_processor, "processors"))
            if (std::string token = first_token_of(step); !token.empty()) return token;
    }
    const Json& single = member(post_processor, "single");
    if (type != "TemplateProcessing" || !single.is_array() || single.empty()) return {};
    return text_or_empty(member(member(single[0], "SpecialToken"), "id"));
}

}  // namespace

Result<TokenizerJson> parse_tokenizer_json(std::string_view text) {
    ATOLL_TRY(const Json root, json::parse(text));
    if (!root.is_object()) return bad("tokenizer.json", "is no JSON object");
    TokenizerJson result;
    if (!member(root, "normalizer").is_null())
        return bad("normalizer",
                   "\"" + text_or_empty(member(member(root, "normalizer"), "type")) + "\" is not supported");
    ATOLL_RETURN_IF_ERROR(read_model(member(root, "model"), result));
    ATOLL_RETURN_IF_ERROR(read_added_tokens(member(root, "added_tokens"), result));
    ATOLL_RETURN_IF_ERROR(read_pre_tokenizer(member(root, "pre_tokenizer"), result));
    result.first_token = first_token_of(member(root, "post_processor"));
    return result;
}

}  // namespace atl::data
