#include "trainer/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

constexpr char32_t kCodesEnd = 0x144;  // behind the last character of the alphabet

struct Alphabet {
    std::array<std::string, 256> characters;         // of each byte, in UTF-8
    std::array<std::int16_t, kCodesEnd> bytes_of{};  // of each character; -1: none
};

Alphabet make_alphabet() {
    Alphabet alphabet;
    alphabet.bytes_of.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        const char32_t code = prints ? static_cast<char32_t>(byte) : next++;
        std::string& text = alphabet.characters[byte];
        if (code >= 0x80) text += static_cast<char>(0xc0 | code >> 6);
        text += static_cast<char>(code >= 0x80 ? 0x80 | (code & 0x3f) : code);
        alphabet.bytes_of[code] = static_cast<std::int16_t>(byte);
    }
    return alphabet;
}

const Alphabet& alphabet() {
    static const Alphabet made = make_alphabet();
    return made;
}

}  // namespace

void append_in_alphabet(std::string_view bytes, std::string& text) {
    const Alphabet& known = alphabet();
    for (const char byte : bytes) text += known.characters[static_cast<unsigned char>(byte)];
}

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
    const Alphabet& known = alphabet();
    std::string bytes;
    while (!text.empty()) {
        if (utf8_length(text) == 0) return std::nullopt;
        const CodePoint next = first_code_point(text);
        if (next.code >= kCodesEnd || known.bytes_of[next.code] < 0) return std::nullopt;
        bytes.push_back(static_cast<char>(known.bytes_of[next.code]));
        text.remove_prefix(next.length);
    }
    return bytes;
}

}  // namespace atl::tokenizer
