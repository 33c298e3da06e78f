#include "trainer/tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace atl::tokenizer {
namespace {

struct Sequence {
    int length = 1;  // bytes of the sequence, or of the ill-formed part
    bool well_formed = true;
};

// The sequence at the start of `text`, which is not empty.
Sequence first_sequence(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(text[i])); };
    const unsigned first = byte(0);
    if (first < 0x80) return {1, true};
    if (first < 0xc2 || first > 0xf4) return {1, false};
    const int length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    // Only the second byte's range depends on the first: no overlong forms, surrogates or what is beyond U+10FFFF.
    unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < length; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (at >= text.size() || byte(at) < low || byte(at) > high) return {i, false};
        low = 0x80;
        high = 0xbf;
    }
    return {length, true};
}

}  // namespace

int utf8_length(std::string_view text) {
    if (text.empty()) return 0;
    const Sequence sequence = first_sequence(text);
    return sequence.well_formed ? sequence.length : 0;
}

std::size_t space_length(std::string_view text) {
    if (text.empty()) return 0;
    if (text[0] == ' ' || (text[0] >= '\t' && text[0] <= '\r')) return 1;
    if (static_cast<unsigned char>(text[0]) < 0x80) return 0;
    for (const std::string_view space :
         {"\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007",
          "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"})
        if (text.starts_with(space)) return space.size();
    return 0;
}

bool is_utf8(std::string_view text) {
    constexpr std::uint64_t kHighBits = 0x8080808080808080ULL;
    while (!text.empty()) {
        std::uint64_t eight = 0;
        if (text.size() >= sizeof eight) std::memcpy(&eight, text.data(), sizeof eight);
        const bool ascii = text.size() >= sizeof eight && (eight & kHighBits) == 0;
        const int length = ascii ? static_cast<int>(sizeof eight) : utf8_length(text);
        if (length == 0) return false;
        text.remove_prefix(static_cast<std::size_t>(length));
    }
    return true;
}

std::string with_utf8_replaced(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const Sequence sequence = first_sequence(text);
        const auto length = static_cast<std::size_t>(sequence.length);
        result += sequence.well_formed ? text.substr(0, length) : std::string_view("\xef\xbf\xbd");
        text.remove_prefix(length);
    }
    return result;
}

}  // namespace atl::tokenizer
