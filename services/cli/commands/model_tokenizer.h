#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "shared/base/result.h"

namespace atl::cli {

// The largest token id of the tokenizer in a model directory (tokenizer.json, vocab.json or a SentencePiece
// tokenizer.model, with the tokens that tokenizer_config.json or added_tokens.json adds); absent: there is no
// tokenizer. kInvalidArgument names a file that is none.
Result<std::optional<std::int64_t>> largest_token_id(const std::filesystem::path& directory);

// Why `atoll-trainer` beside this program cannot read the tokenizer of a model directory, in its words; empty: it can,
// or there is no such program.
std::string unread_tokenizer(const std::filesystem::path& directory);

}  // namespace atl::cli
