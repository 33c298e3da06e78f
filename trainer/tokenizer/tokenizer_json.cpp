#include "trainer/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "shared/json/json.h"
#include "trainer/tokenizer/tokenizer_fields.h"
#include "trainer/tokenizer/tokenizer_steps.h"

namespace atl::tokenizer {
namespace {

using json::Json;

bool is_set(const Json& value) {
    return !value.is_null() && value != Json(false) && value != Json("") && value != Json(0.0);
}

// "a b" (older files) or ["a", "b"].
std::optional<std::pair<std::string, std::string>> parse_merge(const Json& value) {
    if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
        return std::pair(value[0].get<std::string>(), value[1].get<std::string>());
    if (!value.is_string()) return std::nullopt;
    const std::string text = value.get<std::string>();
    const auto space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return std::nullopt;
    return std::pair(text.substr(0, space), text.substr(space + 1));
}

Status read_model(const Json& model, BpeParts& result) {
    if (!model.is_object()) return fields::bad("model", "is missing or no object");
    if (const std::string type = fields::text_or_empty(fields::member(model, "type")); type != "BPE" && !type.empty())
        return fields::bad("model.type", "\"" + type + "\" is not supported, only BPE is");
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
        if (is_set(fields::member(model, key))) return fields::bad(std::string("model.") + key, "is not supported");
    result.ignore_merges = fields::is_true(fields::member(model, "ignore_merges"));
    result.byte_fallback = fields::is_true(fields::member(model, "byte_fallback"));
    result.fuse_unk = fields::is_true(fields::member(model, "fuse_unk"));
    result.unk_token = fields::text_or_empty(fields::member(model, "unk_token"));
    if (!fields::member(model, "vocab").is_object() || !fields::member(model, "merges").is_array())
        return fields::bad("model", "vocab or merges is missing");
    ATOLL_RETURN_IF_ERROR(fields::read_vocab(fields::member(model, "vocab"), "model.vocab", result));
    for (const Json& value : fields::member(model, "merges")) {
        if (fields::text_or_empty(value).starts_with("#version")) continue;  // as in merges.txt
        auto merge = parse_merge(value);
        if (!merge) return fields::bad("model.merges", "entry " + std::to_string(result.merges.size()) + " is no pair");
        result.merges.push_back(std::move(*merge));
    }
    return {};
}

// The id that the tokenizers library gives a token that is added to these, whatever its file says.
std::int32_t id_of_added(const std::string& content, const BpeParts& parts) {
    if (const auto known = parts.vocab.find(content); known != parts.vocab.end()) return known->second;
    auto next = static_cast<std::int32_t>(parts.vocab.size());
    for (const AddedToken& other : parts.added_tokens) {
        if (other.content == content) return other.id;
        next = std::max(next, other.id + 1);
    }
    return next;
}

// Without a vocabulary the ids are those of the file.
Status read_added_tokens(const Json& tokens, BpeParts& result) {
    if (tokens.is_null()) return {};
    if (!tokens.is_array()) return fields::bad("added_tokens", "is no array");
    for (const Json& token : tokens) {
        ATOLL_TRY(auto added, fields::read_added_token(token, fields::member(token, "id"), "added_tokens"));
        const std::int32_t id = result.vocab.empty() ? added.id : id_of_added(added.content, result);
        if (id != added.id)
            return fields::bad("added_tokens", "\"" + added.content + "\" has the id " + std::to_string(added.id) +
                                                   ", but the tokenizers library gives it " + std::to_string(id) +
                                                   ": the file was not written by it; correct the id");
        result.added_tokens.push_back(std::move(added));
    }
    return {};
}

constexpr const char* kOtherTemplate =
    "a TemplateProcessing that puts anything but one special token before the text is not supported";

// The special token that a TemplateProcessing puts before the text: nothing or one, and nothing behind.
Status read_template(const Json& processor, BpeParts& result) {
    const Json& single = fields::member(processor, "single");
    const bool has_text = single.is_array() && !single.empty() && !fields::member(single.back(), "Sequence").is_null();
    if (!has_text || single.size() > 2) return fields::bad("post_processor", kOtherTemplate);
    if (single.size() == 1) return {};
    const std::string name = fields::text_or_empty(fields::member(fields::member(single[0], "SpecialToken"), "id"));
    const Json& special = fields::member(fields::member(processor, "special_tokens"), name.c_str());
    const Json &tokens = fields::member(special, "tokens"), &ids = fields::member(special, "ids");
    if (!tokens.is_array() || tokens.size() != 1 || !tokens[0].is_string() || !result.first_token.empty())
        return fields::bad("post_processor", kOtherTemplate);
    result.first_token = tokens[0].get<std::string>();
    if (ids != Json::array({id_of_added(result.first_token, result)}))
        return fields::bad("post_processor",
                           "puts other ids before the text than that of \"" + result.first_token + "\"");
    return {};
}

Status read_post_processor(const Json& processor, BpeParts& result) {
    const std::string type = fields::text_or_empty(fields::member(processor, "type"));
    if (processor.is_null() || type == "ByteLevel") return {};  // which moves offsets only
    if (type == "TemplateProcessing") return read_template(processor, result);
    const Json& steps = fields::member(processor, "processors");
    if (type != "Sequence" || !steps.is_array())
        return fields::bad("post_processor", "\"" + type + "\" is not supported");
    for (const Json& step : steps) ATOLL_RETURN_IF_ERROR(read_post_processor(step, result));
    return {};
}

bool puts_token_in_front(const Json& processor) {
    const Json& single = fields::member(processor, "single");
    if (single.is_array() && !single.empty()) return !fields::member(single[0], "SpecialToken").is_null();
    const Json& steps = fields::member(processor, "processors");
    return steps.is_array() && std::any_of(steps.begin(), steps.end(), puts_token_in_front);
}

}  // namespace

Result<BpeParts> parse_tokenizer_json(std::string_view text) {
    ATOLL_TRY(const Json root, json::parse(text));
    if (!root.is_object()) return fields::bad("tokenizer.json", "is no JSON object");
    BpeParts result;
    ATOLL_RETURN_IF_ERROR(read_normalizer(fields::member(root, "normalizer"), result));
    ATOLL_RETURN_IF_ERROR(read_model(fields::member(root, "model"), result));
    ATOLL_RETURN_IF_ERROR(read_added_tokens(fields::member(root, "added_tokens"), result));
    ATOLL_RETURN_IF_ERROR(read_pre_tokenizer(fields::member(root, "pre_tokenizer"), result));
    ATOLL_RETURN_IF_ERROR(read_decoder(fields::member(root, "decoder"), result));
    ATOLL_RETURN_IF_ERROR(read_post_processor(fields::member(root, "post_processor"), result));
    return result;
}

std::optional<BpeParts> parse_vocabulary(std::string_view text) {
    const auto root = json::parse(text);
    BpeParts result;
    if (!root.ok() || !read_model(fields::member(*root, "model"), result).ok()) return std::nullopt;
    return result;
}

Status take_added_tokens(std::string_view text, TokenizerConfig& config) {
    ATOLL_TRY(const Json root, json::parse(text));
    config.add_bos = puts_token_in_front(fields::member(root, "post_processor"));
    if (config.has_decoder) return {};
    BpeParts own;
    ATOLL_RETURN_IF_ERROR(read_added_tokens(fields::member(root, "added_tokens"), own));
    for (AddedToken& token : own.added_tokens) {
        std::erase_if(config.added_tokens, [&](const AddedToken& other) { return other.id == token.id; });
        config.added_tokens.push_back(std::move(token));
    }
    std::sort(config.added_tokens.begin(), config.added_tokens.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    return {};
}

}  // namespace atl::tokenizer
