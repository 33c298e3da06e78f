#include "shared/model_config/vocabulary.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/text.h"

namespace atl::model_config {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Tokens = std::vector<std::pair<std::string, std::int64_t>>;

constexpr std::uintmax_t kFileBytesMax = 64U << 20;  // what atoll-trainer reads of a tokenizer

Result<std::string> read_bounded(const fs::path& file) {
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(file, error);
    if (!error && bytes > kFileBytesMax)
        return invalid_argument(file.string(), "has " + human_bytes(bytes) + "; a tokenizer's file has at most " +
                                                   human_bytes(kFileBytesMax));
    return read_file(file);
}

Result<Json> read_object(const fs::path& file) {
    ATOLL_TRY(const std::string text, read_bounded(file));
    Json parsed = Json::parse(text, nullptr, false);
    if (!parsed.is_object()) return invalid_argument(file.string(), "must hold a JSON object");
    return parsed;
}

// {"token": id, …}
void add_map(const Json& vocabulary, Tokens& tokens) {
    for (const auto& [token, id] : vocabulary.items())
        if (id.is_number_integer()) tokens.emplace_back(token, id.get<std::int64_t>());
}

std::string content_of(const Json& token) {
    if (token.is_string()) return token.get<std::string>();
    const Json content = token.is_object() ? token.value("content", Json()) : Json();
    return content.is_string() ? content.get<std::string>() : std::string();
}

// {"id": {"content": …}, …}
void add_decoder(const Json& decoder, Tokens& tokens) {
    for (const auto& [key, token] : decoder.items()) {
        std::int64_t id = -1;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        if (error == std::errc() && end == key.data() + key.size()) tokens.emplace_back(content_of(token), id);
    }
}

// A merge is "a b" or, in newer files, ["a", "b"].
void add_merges(const Json& merges, std::vector<std::string>& out) {
    for (const Json& merge : merges) {
        if (merge.is_string())
            out.push_back(merge.get<std::string>());
        else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
            out.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
}

// The vocabulary holds ids by token or, of a Unigram model, [token, score] in the order of the ids.
Result<Vocabulary> read_tokenizer_json(const fs::path& file) {
    ATOLL_TRY(const Json tokenizer, read_object(file));
    Vocabulary found{"tokenizer.json", {}, {}};
    const Json model = tokenizer.value("model", Json::object());
    const Json vocabulary = model.is_object() ? model.value("vocab", Json()) : Json();
    if (vocabulary.is_object()) add_map(vocabulary, found.tokens);
    if (vocabulary.is_array())
        for (const Json& piece : vocabulary)
            found.tokens.emplace_back(piece.is_array() && !piece.empty() ? content_of(piece[0]) : std::string(),
                                      std::ssize(found.tokens));
    if (model.is_object()) add_merges(model.value("merges", Json()), found.merges);
    const Json added = tokenizer.value("added_tokens", Json::array());
    for (const Json& token : added)
        if (token.is_object() && token.value("id", Json()).is_number_integer())
            found.tokens.emplace_back(content_of(token), token["id"].get<std::int64_t>());
    return found;
}

Result<Vocabulary> read_vocab_json(const fs::path& directory) {
    ATOLL_TRY(const Json vocabulary, read_object(directory / "vocab.json"));
    Vocabulary found{"vocab.json", {}, {}};
    add_map(vocabulary, found.tokens);
    std::error_code error;
    if (!fs::exists(directory / "merges.txt", error)) return found;
    ATOLL_TRY(const std::string merges, read_bounded(directory / "merges.txt"));
    for (std::string_view line : split(merges, '\n')) {
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (!line.empty() && !line.starts_with("#version")) found.merges.emplace_back(line);
    }
    return found;
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

// Calls take(key, bytes) for each member of a protocol buffer; of a number the bytes are empty. False: it is none.
template <class Take>
bool each_member(std::string_view rest, Take&& take) {
    while (!rest.empty()) {
        std::uint64_t key = 0, size = 0;
        if (!read_varint(rest, key)) return false;
        const std::uint64_t wire = key & 7;
        if (wire == 0) {
            if (!read_varint(rest, size)) return false;
            continue;
        }
        if (wire == 2 && !read_varint(rest, size)) return false;
        if (wire == 1) size = 8;
        if (wire == 5) size = 4;
        if ((wire != 1 && wire != 2 && wire != 5) || size > rest.size()) return false;
        take(key, rest.substr(0, size));
        rest.remove_prefix(size);
    }
    return true;
}

// The pieces of a SentencePiece model, a protocol buffer whose field 1 repeats, each with the next id; a piece's own
// field 1 is its text.
Result<Vocabulary> read_sentencepiece(const fs::path& file) {
    constexpr std::uint64_t kFirstText = 1 << 3 | 2;
    ATOLL_TRY(const std::string text, read_bounded(file));
    Vocabulary found{"tokenizer.model", {}, {}};
    const bool is_read = each_member(text, [&](std::uint64_t key, std::string_view piece) {
        if (key != kFirstText) return;
        std::string token;
        each_member(piece, [&](std::uint64_t member, std::string_view bytes) {
            if (member == kFirstText) token = bytes;
        });
        found.tokens.emplace_back(std::move(token), std::ssize(found.tokens));
    });
    if (is_read && !found.tokens.empty()) return found;
    return invalid_argument(file.string(),
                            "is no SentencePiece model; one in tiktoken's format needs the model's tokenizer.json "
                            "beside it");
}

// What the files beside it add: the decoder in tokenizer_config.json stands in the place of added_tokens.json.
Status add_tokens_beside(const fs::path& directory, Tokens& tokens) {
    std::error_code error;
    if (fs::exists(directory / "tokenizer_config.json", error)) {
        ATOLL_TRY(const Json config, read_object(directory / "tokenizer_config.json"));
        const Json decoder = config.value("added_tokens_decoder", Json());
        if (decoder.is_object()) {
            add_decoder(decoder, tokens);
            return {};
        }
    }
    if (!fs::exists(directory / "added_tokens.json", error)) return {};
    ATOLL_TRY(const Json added, read_object(directory / "added_tokens.json"));
    add_map(added, tokens);
    return {};
}

}  // namespace

Result<std::optional<Vocabulary>> read_vocabulary(const fs::path& directory) {
    std::error_code error;
    std::optional<Vocabulary> found;
    if (fs::exists(directory / "tokenizer.json", error)) {
        ATOLL_TRY(found, read_tokenizer_json(directory / "tokenizer.json"));
    } else if (fs::exists(directory / "tokenizer.model", error)) {
        ATOLL_TRY(found, read_sentencepiece(directory / "tokenizer.model"));
    } else if (fs::exists(directory / "vocab.json", error)) {
        ATOLL_TRY(found, read_vocab_json(directory));
    }
    if (found) ATOLL_RETURN_IF_ERROR(add_tokens_beside(directory, found->tokens));
    return found;
}

}  // namespace atl::model_config
