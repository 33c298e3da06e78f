#pragma once

#include <optional>
#include <string_view>

#include "shared/base/result.h"
#include "trainer/tokenizer/bpe_parts.h"

namespace atl::tokenizer {

// The parts of a BPE tokenizer in a Hugging Face tokenizer.json. kInvalidArgument names the member that is missing,
// wrong or of a kind that is not built (another model than BPE, the normalizer Lowercase, …): a tokenizer that would
// differ from the reference is never opened.
Result<BpeParts> parse_tokenizer_json(std::string_view text);

// Its vocabulary and merges alone; nothing: it has none of BPE.
std::optional<BpeParts> parse_vocabulary(std::string_view text);

// Takes over what a tokenizer.json says beside a tokenizer.model that has the same vocabulary: whether a token is put
// before texts, and its added tokens unless the config has an added_tokens_decoder.
Status take_added_tokens(std::string_view text, TokenizerConfig& config);

}  // namespace atl::tokenizer
