#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shared/base/result.h"

// Real text for the demo: Debian's fortune collections, an entry a document.
namespace atl::demo {

struct Corpus {
    std::vector<std::string> private_documents;  // what the facility alone holds
    std::vector<std::string> public_documents;   // the small public sample that tokenizer and base model are made from
};

// The entries of one collection text: parts between lines that hold a single "%"; white space at the ends is dropped.
std::vector<std::string> split_fortunes(const std::string& text);

// The collections among the files of a listing, a path a line, that are in the folder or below it; sorted.
std::vector<std::filesystem::path> collections_in(const std::string& listing, const std::filesystem::path& folder);

// The collections of an installed Debian package (such as fortunes-it), by dpkg's list of its files: where they lie
// differs between Debian's releases. kNotFound: it is not installed.
Result<std::vector<std::filesystem::path>> fortune_files(const std::string& package);

// Reads the collections, drops repeated entries, and puts one document in `public_one_in` into the public sample, by
// the hash of its text.
Result<Corpus> read_fortunes(const std::vector<std::filesystem::path>& files, int public_one_in);

// One JSON object a line: {"text": …}.
std::string to_jsonl(const std::vector<std::string>& documents);
Status write_jsonl(const std::filesystem::path& file, const std::vector<std::string>& documents);

// {"instruction": …, "text": …}: rows of a file that holds the texts of several sites.
std::string to_instructed_jsonl(const std::string& instruction, const std::vector<std::string>& documents);

}  // namespace atl::demo
