#pragma once

#include <string>
#include <string_view>

namespace atl::tokenizer {

// The length of the well-formed UTF-8 sequence at the start of `text` (no overlong forms, no surrogates, at most
// U+10FFFF), 0 when there is none.
int utf8_length(std::string_view text);
// The bytes of the white space (a character of Unicode's White_Space) at the start of `text`, 0 when there is none.
std::size_t space_length(std::string_view text);
bool is_utf8(std::string_view text);

// `text` with each ill-formed part replaced by U+FFFD: as many of its bytes at a time as could begin a well-formed
// sequence, one at least (the Unicode Standard, 3.9, "substitution of maximal subparts"; what Python and Rust do).
std::string with_utf8_replaced(std::string_view text);

}  // namespace atl::tokenizer
