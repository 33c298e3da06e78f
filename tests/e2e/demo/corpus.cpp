#include "tests/e2e/demo/corpus.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/base/text.h"
#include "shared/digest/digest.h"
#include "shared/json/json.h"

namespace atl::demo {
namespace {

constexpr const char* kCollections = "/usr/share/games/fortunes";

// A collection is a plain file; beside it stand its index (.dat) and a link to it (.u8). "-sk" is Slovak among the
// Czech.
bool is_collection(const std::filesystem::path& file, const std::filesystem::path& folder) {
    std::error_code error;
    return file.native().starts_with(folder.native() + "/") && file.extension() != ".dat" &&
           !file.native().ends_with("-sk") &&
           std::filesystem::symlink_status(file, error).type() == std::filesystem::file_type::regular;
}

bool is_public(const std::string& document, int public_one_in) {
    return std::stoul(digest::sha256("public:" + document).substr(0, 8), nullptr, 16) %
               static_cast<unsigned>(public_one_in) ==
           0;
}

std::string rows_of(json::Json row, const std::vector<std::string>& documents) {
    std::string lines;
    for (const std::string& document : documents) {
        row["text"] = document;
        lines += row.dump(-1, ' ', false, json::Json::error_handler_t::replace) + "\n";
    }
    return lines;
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
            if (const auto document = trim(current); !document.empty()) documents.emplace_back(document);
            current.clear();
        }
    }
    return documents;
}

std::vector<std::filesystem::path> collections_in(const std::string& listing, const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    std::istringstream lines(listing);
    for (std::string line; std::getline(lines, line);)
        if (is_collection(line, folder)) files.emplace_back(line);
    std::sort(files.begin(), files.end());
    return files;
}

Result<std::vector<std::filesystem::path>> fortune_files(const std::string& package) {
    ATOLL_TRY(const CommandResult listed, run_command({"dpkg-query", "--listfiles", package}));
    std::vector<std::filesystem::path> files = collections_in(listed.out, kCollections);
    if (files.empty())
        return not_found("the package " + package + " with its collections of texts is not installed: ./dev install",
                         package);
    return files;
}

Result<Corpus> read_fortunes(const std::vector<std::filesystem::path>& files, int public_one_in) {
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

std::string to_jsonl(const std::vector<std::string>& documents) {
    return rows_of(json::Json::object(), documents);
}

Status write_jsonl(const std::filesystem::path& file, const std::vector<std::string>& documents) {
    std::filesystem::create_directories(file.parent_path());
    return write_file_atomic(file, to_jsonl(documents));
}

std::string to_instructed_jsonl(const std::string& instruction, const std::vector<std::string>& documents) {
    return rows_of({{"instruction", instruction}}, documents);
}

}  // namespace atl::demo
