#include "trainer/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "shared/base/file.h"
#include "trainer/tokenizer/tokenizer_fields.h"

namespace atl::tokenizer {
namespace {

using json::Json;

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

void read_specials(const Json& object, TokenizerConfig& config) {
    for (const char* key :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
        const std::string token = fields::token_text(fields::member(object, key));
        if (token.empty()) continue;
        if (key == std::string("bos_token")) config.bos = token;
        if (key == std::string("eos_token")) config.eos = token;
        config.specials.push_back(token);
    }
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
        if (!fields::member(object, key).is_array()) continue;
        for (const Json& token : fields::member(object, key))
            if (std::string text = fields::token_text(token); !text.empty()) config.specials.push_back(std::move(text));
    }
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
    ByteLevelParts added;
    ATOLL_RETURN_IF_ERROR(fields::read_vocab(tokens, "added_tokens", added));
    for (const auto& [content, id] : added.vocab) {
        const bool special =
            std::find(config.specials.begin(), config.specials.end(), content) != config.specials.end();
        config.added_tokens.push_back({id, content, special, !special, false});
    }
    return {};
}

Result<TokenizerConfig> read_main(const Json& object) {
    TokenizerConfig config;
    read_specials(object, config);
    config.tokenizer_class = fields::text_or_empty(fields::member(object, "tokenizer_class"));
    config.add_prefix_space = fields::is_true(fields::member(object, "add_prefix_space"));
    config.legacy = fields::is_true(fields::member(object, "legacy"));
    const Json& add_bos = fields::member(object, "add_bos_token");
    if (!add_bos.is_null() && !add_bos.is_boolean()) return fields::bad("add_bos_token", "is no boolean");
    if (add_bos.is_boolean()) config.add_bos = add_bos.get<bool>();
    return config;
}

Error in_config(const std::filesystem::path& path, const Error& error) {
    return invalid_argument(path.string(), path.string() + ": " + error.message);
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& directory) {
    const auto path = directory / "tokenizer_config.json";
    ATOLL_TRY(const Json object, read_object(path));
    auto config = read_main(object);
    if (!config.ok()) return in_config(path, config.error());
    if (const Json& decoder = fields::member(object, "added_tokens_decoder"); !decoder.is_null()) {
        const Status status = read_added_tokens_decoder(decoder, *config);
        return status.ok() ? std::move(config) : in_config(path, status.error());
    }
    ATOLL_TRY(const Json specials, read_object(directory / "special_tokens_map.json"));
    read_specials(specials, *config);
    const auto added_path = directory / "added_tokens.json";
    ATOLL_TRY(const Json added, read_object(added_path));
    const Status status = read_added_tokens_file(added, *config);
    return status.ok() ? std::move(config) : in_config(added_path, status.error());
}

}  // namespace atl::tokenizer
