#include "services/cli/commands/model_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "shared/base/file.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Result<json> read_object(const fs::path& file) {
    ATOLL_TRY(const std::string text, read_file(file));
    json parsed = json::parse(text, nullptr, false);
    if (!parsed.is_object()) return invalid_argument(file.string(), "must hold a JSON object");
    return parsed;
}

std::int64_t largest(const json& id, std::int64_t so_far) {
    return id.is_number_integer() ? std::max(so_far, id.get<std::int64_t>()) : so_far;
}

// {"token": id, …}
std::int64_t largest_of_map(const json& vocabulary) {
    std::int64_t id = -1;
    for (const json& value : vocabulary) id = largest(value, id);
    return id;
}

// {"id": {"content": …}, …}
std::int64_t largest_of_keys(const json& tokens) {
    std::int64_t largest_id = -1;
    for (const auto& [key, token] : tokens.items()) {
        std::int64_t id = -1;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        if (error == std::errc() && end == key.data() + key.size()) largest_id = std::max(largest_id, id);
    }
    return largest_id;
}

// Of tokenizers' own file: a vocabulary of ids by token, or of Unigram's pairs in the order of their ids.
std::int64_t largest_of_tokenizer_json(const json& tokenizer) {
    std::int64_t id = -1;
    const json model = tokenizer.value("model", json::object());
    const auto vocabulary = model.find("vocab");
    if (vocabulary != model.end() && vocabulary->is_object()) id = largest_of_map(*vocabulary);
    if (vocabulary != model.end() && vocabulary->is_array()) id = std::ssize(*vocabulary) - 1;
    const json added = tokenizer.value("added_tokens", json::array());
    for (const json& token : added)
        if (token.is_object() && token.contains("id")) id = largest(token["id"], id);
    return id;
}

bool read_varint(std::string_view& bytes, std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes.front());
        bytes.remove_prefix(1);
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if ((byte & 0x80) == 0) return true;
    }
    return false;
}

// The pieces of a SentencePiece model, a protocol buffer whose field 1 repeats, each with the next id.
Result<std::int64_t> largest_of_sentencepiece(const fs::path& file) {
    const auto broken = [&] {
        return invalid_argument(file.string(),
                                "is no SentencePiece model; one in tiktoken's format needs the model's tokenizer.json "
                                "beside it");
    };
    ATOLL_TRY(const std::string text, read_file(file));
    std::string_view rest = text;
    std::int64_t pieces = 0;
    while (!rest.empty()) {
        std::uint64_t key = 0, size = 0;
        if (!read_varint(rest, key)) return broken();
        const std::uint64_t wire = key & 7;
        if (wire == 0) {
            if (!read_varint(rest, size)) return broken();
            continue;
        }
        if (wire == 2 && !read_varint(rest, size)) return broken();
        if (wire == 1) size = 8;
        if (wire == 5) size = 4;
        if ((wire != 1 && wire != 2 && wire != 5) || size > rest.size()) return broken();
        rest.remove_prefix(size);
        pieces += key == (1 << 3 | 2) ? 1 : 0;
    }
    if (pieces == 0) return broken();
    return pieces - 1;
}

}  // namespace

Result<std::optional<std::int64_t>> largest_token_id(const fs::path& directory) {
    std::error_code error;
    std::optional<std::int64_t> id;
    if (fs::exists(directory / "tokenizer.json", error)) {
        ATOLL_TRY(const json tokenizer, read_object(directory / "tokenizer.json"));
        id = largest_of_tokenizer_json(tokenizer);
    } else if (fs::exists(directory / "vocab.json", error)) {
        ATOLL_TRY(const json vocabulary, read_object(directory / "vocab.json"));
        id = largest_of_map(vocabulary);
    } else if (fs::exists(directory / "tokenizer.model", error)) {
        ATOLL_TRY(id, largest_of_sentencepiece(directory / "tokenizer.model"));
    }
    if (id && fs::exists(directory / "tokenizer_config.json", error)) {
        ATOLL_TRY(const json config, read_object(directory / "tokenizer_config.json"));
        const json decoder = config.value("added_tokens_decoder", json());
        if (decoder.is_object()) {  // stands in the place of added_tokens.json
            id = std::max(*id, largest_of_keys(decoder));
            return id;
        }
    }
    if (id && fs::exists(directory / "added_tokens.json", error)) {
        ATOLL_TRY(const json added, read_object(directory / "added_tokens.json"));
        id = std::max(*id, largest_of_map(added));
    }
    return id;
}

}  // namespace atl::cli
