#include "trainer/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "shared/base/file.h"
#include "trainer/tokenizer/tokenizer_fields.h"

namespace atl::tokenizer {
namespace {

using json::Json;

constexpr const char* kMain = "tokenizer_config.json";
constexpr const char* kSpecialTokens = "special_tokens_map.json";
constexpr const char* kAddedTokens = "added_tokens.json";

// The object in a file; null when there is no such file.
Result<Json> read_object(const std::filesystem::path& path) {
    const auto text = read_file(path);
    if (!text.ok() && text.error().code == ErrorCode::kNotFound) return Json();
    if (!text.ok()) return text.error();
    auto object = json::parse(*text);
    if (!object.ok()) return invalid_argument(path.string(), path.string() + ": " + object.error().message);
    if (!object->is_object()) return invalid_argument(path.string(), path.string() + ": is no JSON object");
    return object;
}

bool is_special(const TokenizerConfig& config, const std::string& token) {
    return std::any_of(config.roles.begin(), config.roles.end(),
                       [&](const auto& role) { return role.second == token; }) ||
           std::find(config.other_specials.begin(), config.other_specials.end(), token) != config.other_specials.end();
}

constexpr const char* kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

// A role's token is a string or an object, that of a model's own role ("image_token") a string. transformers refuses
// another role's token of another type.
Status read_roles(const Json& object, TokenizerConfig& config) {
    for (const auto& [key, value] : object.items()) {
        const bool known = std::find(std::begin(kRoles), std::end(kRoles), key) != std::end(kRoles);
        if (!known && !(key.ends_with("_token") && value.is_string())) continue;
        if (!value.is_null() && !value.is_string() && !value.is_object())
            return fields::bad(key, "is neither a string nor an object with a content");
        config.roles[key] = fields::token_text(value);
    }
    return {};
}

// A list of tokens without a role, or an object of tokens by role.
void read_other_specials(const Json& tokens, TokenizerConfig& config) {
    if (tokens.is_object())
        for (const auto& [role, token] : tokens.items()) config.roles[role] = fields::token_text(token);
    if (!tokens.is_array()) return;
    for (const Json& token : tokens) config.other_specials.push_back(fields::token_text(token));
}

constexpr const char* kExtraTokens = "extra_special_tokens";
constexpr const char* kAdditionalTokens = "additional_special_tokens";

void read_lists(const Json& object, TokenizerConfig& config) {
    for (const char* key : {kExtraTokens, kAdditionalTokens}) {
        const Json& list = fields::member(object, key);
        if (!list.is_array()) continue;
        for (const Json& token : list) config.listed.push_back(fields::token_text(token));
    }
}

// Of tokenizer_config.json; the older name of the list counts where the newer one is missing or empty. Of a list
// transformers compares only the strings with added_tokens.json.
void read_main_specials(const Json& object, TokenizerConfig& config) {
    const Json& extra = fields::member(object, kExtraTokens);
    const Json& tokens = extra.empty() ? fields::member(object, kAdditionalTokens) : extra;
    if (tokens.is_object()) read_other_specials(tokens, config);
    if (!tokens.is_array()) return;
    for (const Json& token : tokens)
        if (token.is_string()) config.other_specials.push_back(token.get<std::string>());
}

// {"50265": {"content": …, "special": …}, …}
Status read_added_tokens_decoder(const Json& tokens, TokenizerConfig& config) {
    if (!tokens.is_object()) return fields::bad("added_tokens_decoder", "is no object");
    for (const auto& [key, token] : tokens.items()) {
        std::int64_t id = -1;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        if (error != std::errc() || end != key.data() + key.size()) id = -1;
        ATOLL_TRY(auto added, fields::read_added_token(token, id, "added_tokens_decoder"));
        config.added_tokens.push_back(std::move(added));
    }
    return {};
}

// {"token": id, …}
Status read_added_tokens_file(const Json& tokens, TokenizerConfig& config) {
    if (tokens.is_null()) return {};
    BpeParts added;
    ATOLL_RETURN_IF_ERROR(fields::read_vocab(tokens, "added_tokens", added));
    for (const auto& [content, id] : added.vocab) {
        if (content.empty()) return fields::bad("added_tokens", "an entry has no text");
        const bool special = is_special(config, content);
        config.added_tokens.push_back({id, content, special, !special});
    }
    return {};
}

Status read_boolean(const Json& object, const char* key, std::optional<bool>& value) {
    const Json& member = fields::member(object, key);
    if (!member.is_null() && !member.is_boolean()) return fields::bad(key, "is no boolean");
    if (member.is_boolean()) value = member.get<bool>();
    return {};
}

Status read_main(const Json& object, TokenizerConfig& config) {
    if (!object.is_object()) return {};
    ATOLL_RETURN_IF_ERROR(read_roles(object, config));
    read_main_specials(object, config);
    config.tokenizer_class = fields::text_or_empty(fields::member(object, "tokenizer_class"));
    if (config.tokenizer_class.ends_with("Fast")) config.tokenizer_class.resize(config.tokenizer_class.size() - 4);
    const bool has_legacy = config.tokenizer_class != "CodeLlamaTokenizer";
    config.legacy = has_legacy && fields::is_true(fields::member(object, "legacy"));
    ATOLL_RETURN_IF_ERROR(read_boolean(object, "add_prefix_space", config.add_prefix_space));
    if (config.tokenizer_class == "CodeLlamaTokenizer" && !object.contains("add_bos_token")) config.add_bos = true;
    return read_boolean(object, "add_bos_token", config.add_bos);
}

Error in_file(const char* file, const Error& error) {
    return invalid_argument(file, std::string(file) + ": " + error.message);
}

Status configure_token(const AddedToken& token, const Vocabulary& vocabulary, std::vector<AddedToken>& tokens) {
    const auto known = std::find_if(tokens.begin(), tokens.end(),
                                    [&](const AddedToken& other) { return other.content == token.content; });
    std::int32_t id = vocabulary.size;
    for (const AddedToken& other : tokens) id = std::max(id, other.id + 1);
    if (known != tokens.end()) {
        id = known->id;
    } else if (const auto in_vocabulary = vocabulary.id_of(token.content)) {
        id = *in_vocabulary;
    }
    if (id != token.id)
        return fields::bad("added tokens", "\"" + token.content + "\" has the id " + std::to_string(token.id) +
                                               ", but transformers gives it " + std::to_string(id) +
                                               ": correct it in tokenizer_config.json or added_tokens.json");
    if (known == tokens.end()) {
        tokens.push_back(token);
        return {};
    }
    const bool was_special = known->special;  // to the tokenizers library it stays so
    *known = token;
    known->special |= was_special;
    return {};
}

}  // namespace

bool TokenizerConfig::is_llama() const {
    return tokenizer_class == "LlamaTokenizer" || tokenizer_class == "CodeLlamaTokenizer";
}

std::string TokenizerConfig::token_of(const std::string& role, const std::string& fallback) const {
    const auto found = roles.find(role);
    return found == roles.end() ? fallback : found->second;
}

Result<TokenizerConfig> parse_tokenizer_config(const ConfigFiles& files) {
    TokenizerConfig config;
    if (const Status status = read_main(files.main, config); !status.ok()) return in_file(kMain, status.error());
    read_lists(files.main, config);
    read_lists(files.special_tokens, config);
    const Json& decoder = fields::member(files.main, "added_tokens_decoder");
    config.has_decoder = !decoder.is_null();
    if (config.has_decoder) {
        const Status status = read_added_tokens_decoder(decoder, config);
        if (!status.ok()) return in_file(kMain, status.error());
    } else {
        const Status roles = files.special_tokens.is_object() ? read_roles(files.special_tokens, config) : Status();
        if (!roles.ok()) return in_file(kSpecialTokens, roles.error());
        // Its additional_special_tokens make nothing special.
        const Json& extra = fields::member(files.special_tokens, kExtraTokens);
        if (extra.is_object()) config.other_specials.clear();  // it stands in the place of the config's list
        read_other_specials(extra, config);
        const Status status = read_added_tokens_file(files.added_tokens, config);
        if (!status.ok()) return in_file(kAddedTokens, status.error());
    }
    std::sort(config.added_tokens.begin(), config.added_tokens.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    return config;
}

Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& directory) {
    ConfigFiles files;
    ATOLL_TRY(files.main, read_object(directory / kMain));
    ATOLL_TRY(files.special_tokens, read_object(directory / kSpecialTokens));
    ATOLL_TRY(files.added_tokens, read_object(directory / kAddedTokens));
    auto config = parse_tokenizer_config(files);
    if (config.ok()) return config;
    return invalid_argument((directory / config.error().field).string(), (directory / config.error().message).string());
}

Json describe_tokens(std::vector<AddedToken> tokens) {
    Json described = Json::array();
    if (std::all_of(tokens.begin(), tokens.end(), [](const AddedToken& token) { return token.special; }))
        return described;
    std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    for (const AddedToken& token : tokens)
        described.push_back({token.id, token.content, token.special, token.normalized, token.lstrip, token.rstrip});
    return described;
}

Status add_configured_tokens(const TokenizerConfig& config, const Vocabulary& vocabulary,
                             std::vector<AddedToken>& tokens) {
    const std::vector<AddedToken> own = tokens;
    for (const AddedToken& token : config.added_tokens) {
        const bool is_own = std::any_of(own.begin(), own.end(), [&](const AddedToken& o) { return o.id == token.id; });
        // Older directories say nothing of flags in added_tokens.json: what tokenizer.json says of an id counts.
        if (config.has_decoder || !is_own) ATOLL_RETURN_IF_ERROR(configure_token(token, vocabulary, tokens));
    }
    for (AddedToken& token : tokens)
        if (config.has_special_lists() && std::ranges::find(config.listed, token.content) != config.listed.end())
            token.special = true;
    for (const auto& [role, content] : config.roles) {
        const auto known = std::find_if(tokens.begin(), tokens.end(),
                                        [&](const AddedToken& token) { return token.content == content; });
        if (known != tokens.end()) known->special = true;
        if (known != tokens.end()) continue;
        if (const auto id = content.empty() ? std::nullopt : vocabulary.id_of(content))
            tokens.push_back({*id, content, true, false});
    }
    return {};
}

}  // namespace atl::tokenizer
