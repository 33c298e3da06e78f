#include "trainer/tokenizer/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <fstream>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/digest/digest.h"
#include "trainer/tokenizer/bpe_files.h"
#include "trainer/tokenizer/bpe_tokenizer.h"
#include "trainer/tokenizer/sentencepiece_tokenizer.h"
#include "trainer/tokenizer/sentencepiece_words.h"
#include "trainer/tokenizer/tokenizer_config.h"
#include "trainer/tokenizer/tokenizer_json.h"

namespace atl::tokenizer {
namespace {

// The files that define a tokenizer.
struct Source {
    std::filesystem::path file;
    std::filesystem::path merges;  // beside vocab.json; else empty
};

// That it is a directory which may be looked into.
Status check_directory(const std::filesystem::path& directory) {
    namespace fs = std::filesystem;
    std::error_code error;
    const std::string named = "'" + directory.string() + "'";
    const fs::file_type type = fs::status(directory, error).type();
    if (type == fs::file_type::not_found) return not_found("there is no " + named, directory.string());
    if (fs::exists(directory / ".", error)) return {};
    if (type == fs::file_type::directory || type == fs::file_type::none) return file_error(directory, "open", error);
    return invalid_argument(directory.string(), named + " is a file; give the directory that holds it");
}

// Lines of a token in base64, a space and its rank, as Llama 3's original tokenizer.model has them.
bool is_tiktoken(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    std::string line(256, '\0');
    stream.read(line.data(), static_cast<std::streamsize>(line.size()));
    line.resize(static_cast<std::size_t>(stream.gcount()));
    const std::string_view first = std::string_view(line).substr(0, line.find('\n'));
    const std::size_t space = first.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == first.size()) return false;
    const auto is_base64 = [](unsigned char c) { return std::isalnum(c) != 0 || c == '+' || c == '/' || c == '='; };
    const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
    return std::all_of(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(space), is_base64) &&
           std::all_of(first.begin() + static_cast<std::ptrdiff_t>(space) + 1, first.end(), is_digit);
}

bool has_file(const std::filesystem::path& directory, const char* name) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(directory / name, ignored);
}

// Of a tokenizer.model and the tokenizer.json beside it the model, for open_either() to choose between them.
Result<Source> find_tokenizer(const std::filesystem::path& directory) {
    ATOLL_RETURN_IF_ERROR(check_directory(directory));
    const auto has = [&](const char* name) { return has_file(directory, name); };
    if (has("tokenizer.model")) {
        const bool is_foreign = is_tiktoken(directory / "tokenizer.model");
        if (!is_foreign) return Source{directory / "tokenizer.model", {}};
        if (!has("tokenizer.json"))
            return invalid_argument(directory.string(),
                                    (directory / "tokenizer.model").string() +
                                        " is in tiktoken's format, which is not supported. Add the model's "
                                        "tokenizer.json to the directory; transformers writes it: "
                                        "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)");
    }
    if (has("tokenizer.json")) return Source{directory / "tokenizer.json", {}};
    if (has("vocab.json") && has("merges.txt")) return Source{directory / "vocab.json", directory / "merges.txt"};
    return not_found(
        directory.string() + " holds no tokenizer.model, no tokenizer.json and no vocab.json with merges.txt",
        directory.string());
}

template <class Kind>
Result<std::unique_ptr<Tokenizer>> in_file(const std::filesystem::path& file, Result<std::unique_ptr<Kind>> opened) {
    if (!opened.ok()) return invalid_argument(file.string(), file.string() + ": " + opened.error().message);
    return std::unique_ptr<Tokenizer>(std::move(opened).value());
}

Result<std::unique_ptr<BpeTokenizer>> from_bpe_files(const std::string& vocab, const std::string& merges,
                                                     TokenizerConfig config) {
    ATOLL_TRY(const BpeParts parts, parse_bpe_files(vocab, merges, std::move(config)));
    return BpeTokenizer::create(parts);
}

// Twice the largest of today's models: reading takes a dozen times its size in memory.
constexpr std::uintmax_t kFileBytesMax = 64U << 20;

Result<std::string> read_bounded(const std::filesystem::path& file) {
    std::error_code error;
    const std::uintmax_t bytes = std::filesystem::file_size(file, error);
    if (!error && bytes > kFileBytesMax)
        return invalid_argument(file.string(), "has " + human_bytes(bytes) + "; a tokenizer's file has at most " +
                                                   human_bytes(kFileBytesMax));
    return read_file(file);
}

// transformers takes the tokenizer.json beside a tokenizer.model, which may hold another vocabulary, merges and steps.
// Null: the model gives the ids, because Llama's classes bring steps of their own, which are more like the model's than
// those of an older tokenizer.json, or because the tokenizer.json is not one that is built here.
Result<std::unique_ptr<Tokenizer>> open_json_beside(const std::string& model, const std::filesystem::path& file,
                                                    const std::string& text, const TokenizerConfig& config) {
    const std::optional<BpeParts> own = parse_vocabulary(text);
    if (!own) return std::unique_ptr<Tokenizer>();
    const auto is_same = [&] { return SentencePieceWords::are_of(model, *own); };
    const auto parts = parse_tokenizer_json(text);
    const bool has_own_steps = parts.ok() && parts->has_llama_steps(config.legacy);
    if (config.is_llama() && !has_own_steps && is_same()) return std::unique_ptr<Tokenizer>();
    auto opened = in_file(file, BpeTokenizer::from_json(text, config));
    if (!opened.ok() && is_same()) return std::unique_ptr<Tokenizer>();
    return opened;
}

// What a tokenizer.json says beside the tokenizer.model that counts: as in transformers, whether texts begin with a
// token, and which tokens are added where the config does not.
Status take_from_json_beside(const std::filesystem::path& file, const std::string& text, TokenizerConfig& config) {
    const Status status = take_added_tokens(text, config);
    return status.ok() ? status : invalid_argument(file.string(), file.string() + ": " + status.error().message);
}

// Chooses the file where there are two, of which `source` names the tokenizer.model. `bytes` are those of the file.
Result<std::unique_ptr<Tokenizer>> open_either(Source& source, std::string& bytes, TokenizerConfig& config) {
    const std::filesystem::path beside = source.file.parent_path() / "tokenizer.json";
    if (has_file(beside.parent_path(), "tokenizer.json")) {
        ATOLL_TRY(std::string text, read_bounded(beside));
        ATOLL_TRY(auto json, open_json_beside(bytes, beside, text, config));
        if (json != nullptr) {
            source.file = beside;
            bytes = std::move(text);
            return json;
        }
        ATOLL_RETURN_IF_ERROR(take_from_json_beside(beside, text, config));
    }
    return in_file(source.file, SentencePieceTokenizer::from_bytes(bytes, config));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::open(const std::filesystem::path& directory) {
    ATOLL_TRY(Source source, find_tokenizer(directory));
    ATOLL_TRY(TokenizerConfig config, read_tokenizer_config(directory));
    ATOLL_TRY(std::string bytes, read_bounded(source.file));
    std::string merges;
    if (!source.merges.empty()) {
        ATOLL_TRY(merges, read_bounded(source.merges));
    }
    const bool is_lone_json = source.file.filename() == "tokenizer.json";
    ATOLL_TRY(std::unique_ptr<Tokenizer> tokenizer,
              !source.merges.empty() ? in_file(directory, from_bpe_files(bytes, merges, config))
              : is_lone_json         ? in_file(source.file, BpeTokenizer::from_json(bytes, config))
                                     : open_either(source, bytes, config));
    if (source.file.filename() != "tokenizer.json") tokenizer->add_bos_ = config.add_bos.value_or(tokenizer->add_bos_);
    tokenizer->file_ = source.file;
    const auto id_text = [](std::optional<std::int32_t> id) { return id ? std::to_string(*id) : "none"; };
    tokenizer->sha256_ =
        digest::sha256(digest::sha256(bytes) + digest::sha256(merges) + " begin " +
                       id_text(tokenizer->add_bos_ ? tokenizer->bos() : std::nullopt) + " end " +
                       id_text(tokenizer->eos()) + " reader " + std::to_string(kReader) + tokenizer->settings_);
    return tokenizer;
}

std::string Tokenizer::special_text(std::optional<std::int32_t> id) const {
    for (const auto& [text, token] : special_tokens_)
        if (token.id == id) return text;
    return {};
}

Result<std::vector<std::int32_t>> Tokenizer::encode_prompt(std::string_view text) const {
    std::vector<std::int32_t> ids;
    if (add_bos_ && bos()) ids.push_back(*bos());
    ATOLL_RETURN_IF_ERROR(encode(text, ids));
    return ids;
}

Status Tokenizer::encode_document(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (add_bos_ && bos()) ids.push_back(*bos());
    ATOLL_RETURN_IF_ERROR(encode(text, ids));
    if (eos()) ids.push_back(*eos());
    return {};
}

}  // namespace atl::tokenizer
