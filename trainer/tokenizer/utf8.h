#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atl::tokenizer {

// The length of the well-formed UTF-8 sequence at the start of `text` (no overlong forms, no surrogates, at most
// U+10FFFF), 0 when there is none.
int utf8_length(std::string_view text);
// The bytes of the white space (a character of Unicode's White_Space) at the start of `text`, 0 when there is none.
std::size_t space_length(std::string_view text);
bool is_utf8(std::string_view text);

// A character, and the bytes that it takes in UTF-8.
struct CodePoint {
    char32_t code = 0;
    std::size_t length = 0;
};
// The character at the start of `text`, which must be UTF-8 and not empty.
inline CodePoint first_code_point(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
    if (byte(0) < 0x80) return {byte(0), 1};
    if (byte(0) < 0xe0) return {(byte(0) & 0x1f) << 6 | (byte(1) & 0x3f), 2};
    if (byte(0) < 0xf0) return {(byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
    return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

// `text` with each ill-formed part replaced by U+FFFD: as many of its bytes at a time as could begin a well-formed
// sequence, one at least (the Unicode Standard, 3.9, "substitution of maximal subparts"; what Python and Rust do).
std::string with_utf8_replaced(std::string_view text);

}  // namespace atl::tokenizer
