#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/result.h"

namespace atl::model_config {

// Which ids the tokenizer of a model directory gives to which tokens, as its files say; whether a trainer can read them
// all is not looked at.
struct Vocabulary {
    std::string file;  // that holds it: tokenizer.json, vocab.json or tokenizer.model
    // With those that tokenizer_config.json or added_tokens.json add. A token may stand here twice.
    std::vector<std::pair<std::string, std::int64_t>> tokens;
    std::vector<std::string> merges;  // "a b", in their order; none of a tokenizer.model
};

// Of tokenizer.json, else a SentencePiece tokenizer.model, else vocab.json with merges.txt. Nothing: the directory has
// none of them. kInvalidArgument names a file that is not what its name says.
Result<std::optional<Vocabulary>> read_vocabulary(const std::filesystem::path& directory);

}  // namespace atl::model_config
