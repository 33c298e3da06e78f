#include "tests/e2e/demo/corpus.h"

#include <algorithm>
#include <set>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/json/json.h"

namespace atl::demo {
namespace {

std::string trimmed(const std::string& text) {
    const auto begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// A collection is a plain file; beside it stand its index (.dat) and a link to it (.u8). "-sk" is Slovak among the
// Czech.
bool is_collection(const std::filesystem::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return entry.is_regular_file() && !entry.is_symlink() && entry.path().extension() != ".dat" &&
           !name.ends_with("-sk");
}

bool is_public(const std::string& document, int public_one_in) {
    return std::stoul(digest::sha256("public:" + document).substr(0, 8), nullptr, 16) %
               static_cast<unsigned>(public_one_in) ==
           0;
}

}  // namespace

std::vector<std::string> split_fortunes(const std::string& text) {
    std::vector<std::string> documents;
    std::string current;
    std::size_t at = 0;
    while (at <= text.size()) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        if (line != "%") current += line + "\n";
        if (line == "%" || at > text.size()) {
            if (std::string document = trimmed(current); !document.empty()) documents.push_back(std::move(document));
            current.clear();
        }
    }
    return documents;
}

Result<Corpus> read_fortunes(const std::filesystem::path& directory, int public_one_in) {
    std::error_code error;
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error))
        if (is_collection(entry)) files.push_back(entry.path());
    if (files.empty())
        return not_found("no fortune collections in " + directory.string() + "; install fortunes-it and fortunes-cs",
                         directory.string());
    std::sort(files.begin(), files.end());
    Corpus corpus;
    std::set<std::string> seen;
    for (const auto& file : files) {
        ATOLL_TRY(const std::string text, read_file(file));
        for (std::string& document : split_fortunes(text)) {
            if (!seen.insert(document).second) continue;
            (is_public(document, public_one_in) ? corpus.public_documents : corpus.private_documents)
                .push_back(std::move(document));
        }
    }
    return corpus;
}

std::string to_jsonl(const std::string& instruction, const std::vector<std::string>& documents) {
    std::string lines;
    for (const std::string& document : documents) {
        const json::Json row = {{"instruction", instruction}, {"text", document}};
        lines += row.dump(-1, ' ', false, json::Json::error_handler_t::replace) + "\n";
    }
    return lines;
}

Status write_jsonl(const std::filesystem::path& file, const std::string& instruction,
                   const std::vector<std::string>& documents) {
    std::filesystem::create_directories(file.parent_path());
    return write_file_atomic(file, to_jsonl(instruction, documents));
}

}  // namespace atl::demo
