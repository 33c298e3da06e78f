#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/base/result.h"
#include "shared/json/json.h"
#include "trainer/tokenizer/bpe_parts.h"

// What the JSON files of a tokenizer have in common. Absent members read as null, and so does what is in no object.
namespace atl::tokenizer::fields {

const json::Json& member(const json::Json& object, const char* key);
bool is_true(const json::Json& value);
std::string text_or_empty(const json::Json& value);

// The text of a token: a string, or an object's "content". Empty: neither.
std::string token_text(const json::Json& value);

// kInvalidArgument, "field: what".
Error bad(const std::string& field, const std::string& what);

// {"token": id, …}; kInvalidArgument names `field` and the token whose id is no sensible number.
Status read_vocab(const json::Json& vocab, const std::string& field, BpeParts& parts);

// {"content": …, "special": …, "normalized": …}. single_word is refused where it counts.
Result<AddedToken> read_added_token(const json::Json& token, const json::Json& id, const std::string& field);

}  // namespace atl::tokenizer::fields
