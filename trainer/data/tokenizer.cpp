#include "trainer/data/tokenizer.h"

#include <array>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/json/json.h"
#include "trainer/data/byte_level_tokenizer.h"
#include "trainer/data/sentencepiece_tokenizer.h"

namespace atl::data {
namespace {

constexpr std::array kTokenizerFiles = {"tokenizer.model", "tokenizer.json"};  // in order of preference

Result<std::filesystem::path> find_tokenizer(const std::filesystem::path& directory) {
    for (const char* name : kTokenizerFiles) {
        std::error_code ignored;
        if (std::filesystem::is_regular_file(directory / name, ignored)) return directory / name;
    }
    return not_found(directory.string() + " holds no tokenizer.model and no tokenizer.json", directory.string());
}

// What of tokenizer_config.json matters here; nothing of it when there is no such file.
struct TokenizerConfig {
    std::optional<bool> add_bos;
    std::string bos;
    std::string eos;
};

// A special token: its text, or an object with "content".
std::string special_token(const json::Json& config, const char* key) {
    const auto found = config.find(key);
    if (found == config.end()) return {};
    const json::Json& token = found->is_object() ? found->value("content", json::Json()) : *found;
    return token.is_string() ? token.get<std::string>() : std::string();
}

Result<TokenizerConfig> read_config(const std::filesystem::path& directory) {
    const auto path = directory / "tokenizer_config.json";
    const auto text = read_file(path);
    if (!text.ok() && text.error().code == ErrorCode::kNotFound) return TokenizerConfig();
    if (!text.ok()) return text.error();
    const auto config = json::parse(*text);
    if (!config.ok()) return invalid_argument(path.string(), path.string() + ": " + config.error().message);
    if (!config->is_object()) return invalid_argument(path.string(), path.string() + ": is no JSON object");
    TokenizerConfig result{std::nullopt, special_token(*config, "bos_token"), special_token(*config, "eos_token")};
    const auto found = config->find("add_bos_token");
    if (found == config->end() || found->is_null()) return result;
    if (!found->is_boolean()) return invalid_argument(path.string(), path.string() + ": add_bos_token is no boolean");
    result.add_bos = found->get<bool>();
    return result;
}

template <class Kind>
Result<std::unique_ptr<Tokenizer>> in_file(const std::filesystem::path& file, Result<std::unique_ptr<Kind>> opened) {
    if (!opened.ok()) return invalid_argument(file.string(), file.string() + ": " + opened.error().message);
    return std::unique_ptr<Tokenizer>(std::move(opened).value());
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::open(const std::filesystem::path& directory) {
    ATOLL_TRY(const std::filesystem::path file, find_tokenizer(directory));
    ATOLL_TRY(const TokenizerConfig config, read_config(directory));
    ATOLL_TRY(const std::string bytes, read_file(file));
    const bool is_json = file.filename() == "tokenizer.json";
    ATOLL_TRY(std::unique_ptr<Tokenizer> tokenizer,
              is_json ? in_file(file, ByteLevelTokenizer::from_json(bytes, config.bos, config.eos))
                      : in_file(file, SentencePieceTokenizer::from_bytes(bytes)));
    tokenizer->add_bos_ = config.add_bos.value_or(tokenizer->add_bos_);
    tokenizer->file_ = file;
    tokenizer->sha256_ = digest::sha256(bytes);
    return tokenizer;
}

std::vector<std::int32_t> Tokenizer::encode_prompt(std::string_view text) const {
    std::vector<std::int32_t> ids;
    if (add_bos_ && bos()) ids.push_back(*bos());
    encode(text, ids);
    return ids;
}

void Tokenizer::encode_document(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (add_bos_ && bos()) ids.push_back(*bos());
    encode(text, ids);
    if (eos()) ids.push_back(*eos());
}

Result<std::string> tokenizer_sha256(const std::filesystem::path& directory) {
    ATOLL_TRY(const std::filesystem::path file, find_tokenizer(directory));
    return digest::sha256_file(file);
}

}  // namespace atl::data
