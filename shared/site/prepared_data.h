#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "shared/base/result.h"

// Tokenised data as `atoll-trainer tokenize` leaves them: a directory with train/ and validation/, each with a
// data.json.
namespace atl::site {

// What data.json says of one split.
struct PreparedSplit {
    std::string tokenizer_sha256;
    std::int64_t tokenizer_reader = 0;  // prompt::kTokenizerReader of the program that made it; 0: before there was one
    std::int64_t seq_len = 0;
    std::string batching;
    std::int64_t documents = 0;
    std::int64_t without_end = 0;  // documents that no end token ends
    std::int64_t longer = 0;       // documents longer than a row
    std::int64_t rows = 0;
    std::int64_t tokens = 0;
    std::int64_t tokens_truncated = 0;  // of documents that were cut to a row
    std::int64_t bytes = 0;             // of the documents' text; 0: not known
    std::string fingerprint;
    std::string split;          // that it was made as: "train", "validation", "all"; empty: not known
    std::string text_template;  // that made its documents, as a dataset has it; empty: not known
};

inline constexpr std::size_t kDataJsonBytesMax = 64 << 10;

// `file` names it in errors. kInvalidArgument.
Result<PreparedSplit> read_data_json(std::string_view text, const std::string& file);

// The fingerprint of a dataset's version: it stands for both splits.
std::string joint_fingerprint(const PreparedSplit& train, const PreparedSplit& validation);

// The version as the registry takes it (VersionSpec), without its tokenizer. kInvalidArgument naming the key by which
// the splits are not of one preparation.
Result<nlohmann::json> describe_version(const PreparedSplit& train, const PreparedSplit& validation);

}  // namespace atl::site
