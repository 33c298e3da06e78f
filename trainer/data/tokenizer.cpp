#include "trainer/data/tokenizer.h"

#include <array>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/json/json.h"
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

// tokenizer_config.json's add_bos_token; true when the file or the key is missing, as in LlamaTokenizer.
Result<bool> read_add_bos(const std::filesystem::path& directory) {
    const auto path = directory / "tokenizer_config.json";
    const auto text = read_file(path);
    if (!text.ok() && text.error().code == ErrorCode::kNotFound) return true;
    if (!text.ok()) return text.error();
    const auto config = json::parse(*text);
    if (!config.ok()) return invalid_argument(path.string(), path.string() + ": " + config.error().message);
    const auto found = config->find("add_bos_token");
    if (found == config->end() || found->is_null()) return true;
    if (!found->is_boolean()) return invalid_argument(path.string(), path.string() + ": add_bos_token is no boolean");
    return found->get<bool>();
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::open(const std::filesystem::path& directory) {
    ATOLL_TRY(const std::filesystem::path file, find_tokenizer(directory));
    if (file.filename() == "tokenizer.json")
        return invalid_argument(file.string(), file.string() +
                                                   ": tokenizer.json is not supported yet; "
                                                   "a tokenizer.model (SentencePiece) is needed");
    ATOLL_TRY(const std::string bytes, read_file(file));
    auto opened = SentencePieceTokenizer::from_bytes(bytes);
    if (!opened.ok()) return invalid_argument(file.string(), file.string() + ": " + opened.error().message);
    std::unique_ptr<Tokenizer> tokenizer = std::move(opened).value();
    ATOLL_TRY(tokenizer->add_bos_, read_add_bos(directory));
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
