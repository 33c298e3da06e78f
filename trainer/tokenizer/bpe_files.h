#pragma once

#include <string_view>

#include "shared/base/result.h"
#include "trainer/tokenizer/bpe_parts.h"
#include "trainer/tokenizer/tokenizer_config.h"

namespace atl::tokenizer {

// The parts of a byte-level BPE tokenizer in GPT-2's two files, vocab.json and merges.txt, as GPT-2 and OPT have them;
// what transformers' GPT2Tokenizer makes of them and of `config`. kInvalidArgument names the file and what is wrong in
// it, or a tokenizer_class that reads such files in another way.
Result<BpeParts> parse_bpe_files(std::string_view vocab_json, std::string_view merges_text, TokenizerConfig config);

}  // namespace atl::tokenizer
