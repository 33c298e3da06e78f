#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shared/base/result.h"

namespace atl::aggregate {

// The rows of an embedding belong to tokens: the mean of models whose tokenizers give ids otherwise would be no model.
// kInvalidArgument, naming both directories: a token or an id of a directory's tokenizer is another one's in the first
// one that has a tokenizer, or texts are put together from characters in another order (merges). Returns what else
// differs, for people, a sentence a directory: files that are written otherwise, and tokens that only one has.
Result<std::vector<std::string>> compare_tokenizers(const std::vector<std::filesystem::path>& directories);

}  // namespace atl::aggregate
