#include "shared/aggregate/tokenizers.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "shared/base/file.h"
#include "shared/json/json.h"
#include "shared/model_config/vocabulary.h"

namespace atl::aggregate {
namespace {

namespace fs = std::filesystem;
using model_config::Vocabulary;

constexpr std::array kVocabularyFiles = {"tokenizer.json", "tokenizer.model",   "vocab.json",
                                         "merges.txt",     "added_tokens.json", "tokenizer_config.json"};
constexpr const char* kPieces = "tokenizer.model";              // of SentencePiece
constexpr const char* kSettingsFile = "tokenizer_config.json";  // has tokens, and much that is no token

// Null: it is not there, or cannot be read.
std::optional<std::string> bytes_of(const fs::path& file) {
    auto bytes = read_file(file);
    return bytes.ok() ? std::optional(std::move(bytes).value()) : std::nullopt;
}

bool has_tokenizer(const fs::path& directory) {
    std::error_code error;
    return std::ranges::any_of(std::array{"tokenizer.json", "tokenizer.model", "vocab.json"},
                               [&](const char* name) { return fs::exists(directory / name, error); });
}

// The files whose bytes differ; one that a directory lacks differs as well.
std::vector<std::string> differing_files(const fs::path& a, const fs::path& b) {
    std::vector<std::string> names;
    for (const char* name : kVocabularyFiles)
        if (bytes_of(a / name) != bytes_of(b / name)) names.emplace_back(name);
    return names;
}

std::string listed(const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return all;
}

std::string quoted(const std::string& token) {
    return json::Json(token).dump(-1, ' ', false, json::Json::error_handler_t::replace);
}

class TokenIds {
  public:
    explicit TokenIds(const Vocabulary& vocabulary) {
        for (const auto& [token, id] : vocabulary.tokens) {
            ids_[token] = id;
            tokens_[id] = token;
        }
    }
    // The first token, by its id, that is not the same in `other`, which is in the directory `of`; empty: none.
    std::string conflict(const TokenIds& other, const std::string& of) const {
        for (const auto& [id, token] : tokens_) {
            const auto same_id = other.tokens_.find(id);
            const auto same_token = other.ids_.find(token);
            const std::string here = "the token " + std::to_string(id) + " is " + quoted(token) + ", but ";
            if (same_id != other.tokens_.end() && same_id->second != token)
                return here + quoted(same_id->second) + " in " + of;
            if (same_id == other.tokens_.end() && same_token != other.ids_.end())
                return here + "that is " + std::to_string(same_token->second) + " in " + of;
        }
        return {};
    }
    std::size_t count_beyond(const TokenIds& other) const {
        return static_cast<std::size_t>(
            std::ranges::count_if(tokens_, [&](const auto& entry) { return !other.tokens_.contains(entry.first); }));
    }

  private:
    std::map<std::string, std::int64_t> ids_;
    std::map<std::int64_t, std::string> tokens_;
};

constexpr const char* kChoose = "; choose models with the same tokenizer, others cannot be averaged";

struct Compared {
    fs::path directory;
    Vocabulary vocabulary;
    TokenIds ids;
};

// What else decides how texts are cut and differs, of these files: all of a tokenizer.model, of a tokenizer.json the
// steps before the merges. Empty: nothing, or one has no such file.
std::string differing_steps(const Compared& a, const Compared& b, const std::string& files) {
    if (a.vocabulary.file == kPieces && b.vocabulary.file == kPieces)
        return files.find(kPieces) == std::string::npos ? "" : kPieces;
    const auto read = [](const fs::path& directory) {
        const auto bytes = bytes_of(directory / "tokenizer.json");
        const auto tree = bytes ? json::parse(*bytes) : Result<json::Json>(json::Json());
        return tree.ok() && tree->is_object() ? *tree : json::Json();
    };
    const json::Json first = read(a.directory), other = read(b.directory);
    if (first.is_null() || other.is_null()) return {};
    std::vector<std::string> steps;
    for (const char* step : {"normalizer", "pre_tokenizer"})
        if (first.value(step, json::Json()) != other.value(step, json::Json())) steps.emplace_back(step);
    return listed(steps);
}

// What is to be said of it.
Result<std::string> compare(const Compared& first, const Compared& other, const std::string& files) {
    const std::string of = first.directory.string();
    const auto differs = [&](const std::string& what) {
        return invalid_argument("tokenizer",
                                (other.directory / other.vocabulary.file).string() + ": " + what + kChoose);
    };
    if (const std::string conflict = other.ids.conflict(first.ids, of); !conflict.empty()) return differs(conflict);
    const auto& merges = other.vocabulary.merges;
    if (!merges.empty() && !first.vocabulary.merges.empty() && merges != first.vocabulary.merges)
        return differs("its merges are not those of " + of + ", so texts are cut otherwise");
    std::string note = other.directory.string() + ": its tokenizer files differ from those of " + of + " (" + files +
                       "), but it gives the same tokens the same ids";
    if (const auto more = other.ids.count_beyond(first.ids); more > 0)
        note += "; " + std::to_string(more) + " more than that one has are lost";
    if (const auto less = first.ids.count_beyond(other.ids); less > 0)
        note += "; it lacks " + std::to_string(less) + " of them";
    if (const std::string steps = differing_steps(first, other, files); !steps.empty())
        note += "; its " + steps + " differs, too: check that it cuts texts the same way";
    return note;
}

}  // namespace

Result<std::vector<std::string>> compare_tokenizers(const std::vector<fs::path>& directories) {
    std::vector<std::string> notes;
    const fs::path* first = nullptr;
    std::optional<Compared> read;  // the first
    const auto read_one = [](const fs::path& directory) -> Result<Compared> {
        ATOLL_TRY(auto vocabulary, model_config::read_vocabulary(directory));
        TokenIds ids(*vocabulary);
        return Compared{directory, std::move(*vocabulary), std::move(ids)};
    };
    for (const fs::path& directory : directories) {
        if (!has_tokenizer(directory)) continue;
        if (first == nullptr) {
            first = &directory;
            continue;
        }
        const auto files = differing_files(*first, directory);
        const bool is_settings_alone = files == std::vector<std::string>{kSettingsFile};
        if (files.empty()) continue;
        std::optional<Compared> other;
        const auto open_both = [&]() -> Status {
            if (!read) {
                ATOLL_TRY(read, read_one(*first));
            }
            ATOLL_TRY(other, read_one(directory));
            return {};
        };
        if (const Status opened = open_both(); !opened.ok()) {
            if (is_settings_alone) continue;  // their vocabularies are of the same files
            return opened.error();
        }
        ATOLL_TRY(std::string note, compare(*read, *other, listed(files)));
        if (!is_settings_alone) notes.push_back(std::move(note));
    }
    return notes;
}

}  // namespace atl::aggregate
