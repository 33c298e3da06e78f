#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/json/json.h"

// What the registry knows about datasets, and what it accepts. Pure: no database, no HTTP.
namespace atl::registry {

struct DatasetSpec {
    std::string name;
    std::string language;  // BCP 47: "it", "zh-Hant-TW"
    std::string license;   // an SPDX identifier where there is one
    std::string description;
    std::string template_text;  // "scrivi un seguente documento:: {{text}}", of conversations "chat:chatml"
    std::string source;
};
// kInvalidArgument naming the field, as all parsers here.
Result<DatasetSpec> parse_dataset(const json::Json& body);
// The fields that each row of a corpus must have for its template: of conversations "messages".
std::vector<std::string> fields_of(const std::string& template_text);

// What a PATCH changes; what is absent stays.
struct DatasetPatch {
    std::optional<std::string> language;
    std::optional<std::string> license;
    std::optional<std::string> description;
    std::optional<std::string> template_text;
    std::optional<std::string> source;
};
Result<DatasetPatch> parse_patch(const json::Json& body);
// True when the versions that exist would no longer be what the dataset says: their tokens hold the old template.
bool changes_meaning(const DatasetSpec& dataset, const DatasetPatch& patch);
DatasetSpec patched(DatasetSpec dataset, const DatasetPatch& patch);

struct SplitCounts {
    std::int64_t documents = 0;
    std::int64_t rows = 0;    // sequences of seq_len tokens
    std::int64_t tokens = 0;  // without padding
};

// Of a dataset what its versions depend on, and what tells it from a later one of its name.
struct DatasetIdentity {
    std::string created_by;
    std::string created_at;
    std::string language;
    std::string template_text;
    bool operator==(const DatasetIdentity&) const = default;
};

struct VersionSpec {
    std::string tokenizer_sha256;
    // Where the tokenizer came from: {"model", "version", "vocabulary": {file: sha256}, "settings": {file: sha256}};
    // null: not known.
    json::Json tokenizer;
    std::int64_t tokenizer_reader = 0;  // how the trainer read its files (prompt::kTokenizerReader); 0: not known
    std::int64_t seq_len = 0;
    std::string batching;  // "packing" or "padding"
    SplitCounts train;
    SplitCounts validation;
    std::string fingerprint;
    json::Json statistics;  // an object of numbers, arrays and objects: a string could carry text
    std::optional<DatasetIdentity> prepared_for = {};  // the dataset as it was when the preparation was ordered
};
Result<VersionSpec> parse_version(const json::Json& body);
// In the form that the API takes.
json::Json to_json(const VersionSpec& spec);

// A copy of a version at a facility.
struct CopySpec {
    std::string path;         // relative to the facility's work directory
    std::string fingerprint;  // the version's must be the same; empty: whatever it is
};
Result<CopySpec> parse_copy(const json::Json& body);

// A facility's copy of a dataset that somebody looks for.
struct WantedCopy {
    std::string dataset;
    std::string facility;
    std::int64_t version = 0;  // 0: the newest that the facility holds
};
struct WantedCopies {
    std::vector<WantedCopy> copies;
    // {"vocabulary", "settings"}: the files of the tokenizer that the versions should fit; null: any.
    json::Json tokenizer;
    std::int64_t tokenizer_reader = 0;  // how a trainer reads them, so that data of another reader do not fit; 0: any
};
// {"copies": [{"dataset", "facility", "version"?}], "tokenizer"?, "tokenizer_reader"?}
Result<WantedCopies> parse_wanted_copies(const json::Json& body);

// A version's number in a path: 1, 2, 3 …
Result<std::int64_t> parse_version_number(const std::string& text);

}  // namespace atl::registry
