#pragma once

#include "shared/base/result.h"
#include "shared/json/json.h"
#include "trainer/tokenizer/bpe_parts.h"

// What surrounds the model in a tokenizer.json. Each is null, a step, or a Sequence of them; kInvalidArgument names a
// step that is not supported: none is left out.
namespace atl::tokenizer {

Status read_normalizer(const json::Json& normalizer, BpeParts& result);
Status read_pre_tokenizer(const json::Json& pre_tokenizer, BpeParts& result);
Status read_decoder(const json::Json& decoder, BpeParts& result);

}  // namespace atl::tokenizer
