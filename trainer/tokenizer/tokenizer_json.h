#pragma once

#include <string_view>

#include "shared/base/result.h"
#include "trainer/tokenizer/byte_level_parts.h"

namespace atl::tokenizer {

// The parts of a byte-level BPE tokenizer in a Hugging Face tokenizer.json. kInvalidArgument names the member that is
// missing, wrong or of a kind that is not built (another model than BPE, a normalizer that is no form of Unicode, …): a
// tokenizer that would differ from the reference is never opened.
Result<ByteLevelParts> parse_tokenizer_json(std::string_view text);

}  // namespace atl::tokenizer
