#include "shared/json/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "shared/json/printable_line.h"

namespace atl::json {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Character {
    std::uint32_t code = 0;
    std::size_t bytes = 0;  // 0: these bytes are no character
};

// The first character of `text`, which is not empty.
Character decode(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) return {first, 1};
    const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {};
    std::uint32_t code = first & (0xFFU >> (bytes + 1));
    for (std::size_t i = 1; i < bytes; ++i) {
        if ((byte(i) & 0xC0U) != 0x80U) return {};
        code = code << 6U | (byte(i) & 0x3FU);
    }
    constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
    const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    if (code < kLeast[bytes] || code > 0x10FFFF || is_surrogate) return {};
    return {code, bytes};
}

struct Range {
    std::uint32_t first;
    std::uint32_t last;
};

// Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt), line separators and annotations. Zero width
// joiners are among them though some scripts write with them: on a terminal they show as good as nothing, and what is
// stored, as a description, keeps them.
constexpr Range kUnseen[] = {
    {0xAD, 0xAD},     {0x34F, 0x34F},   {0x61C, 0x61C},     {0x115F, 0x1160},   {0x17B4, 0x17B5},  {0x180B, 0x180F},
    {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},   {0x3164, 0x3164},   {0xFE00, 0xFE0F},  {0xFEFF, 0xFEFF},
    {0xFFA0, 0xFFA0}, {0xFFF0, 0xFFFB}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};

// What makes a terminal do or show something else than the text, or what nobody sees: C0 but for newline and tab, DEL,
// C1, and the characters above.
bool is_left_out(std::uint32_t code) {
    if (code < 0x20) return code != '\n' && code != '\t';
    if (code < 0xA0) return code >= 0x7F;
    return std::any_of(std::begin(kUnseen), std::end(kUnseen),
                       [&](const Range& range) { return code >= range.first && code <= range.last; });
}

// "\u009b"; above U+FFFF as a pair of surrogates.
std::string escape(std::uint32_t code) {
    char text[16];
    if (code > 0xFFFF)
        std::snprintf(text, sizeof text, "\\u%04x\\u%04x", static_cast<unsigned>(0xD800 + ((code - 0x10000) >> 10U)),
                      static_cast<unsigned>(0xDC00 + (code & 0x3FFU)));
    else
        std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(code));
    return text;
}

}  // namespace

std::string printable(std::string_view bytes) {
    std::string text;
    text.reserve(bytes.size());
    while (!bytes.empty()) {
        const Character one = decode(bytes);
        if (one.bytes == 0)
            text += kReplacement;
        else if (!is_left_out(one.code))
            text += bytes.substr(0, one.bytes);
        bytes.remove_prefix(std::max<std::size_t>(one.bytes, 1));
    }
    return text;
}

bool is_printable_line(std::string_view text) {
    return text.find_first_of("\n\t") == std::string_view::npos && printable(text) == text;
}

std::string printable_json(std::string_view text) {
    std::string escaped;
    escaped.reserve(text.size());
    while (!text.empty()) {
        const Character one = decode(text);
        const std::size_t bytes = std::max<std::size_t>(one.bytes, 1);
        if (one.code > 0x20 && is_left_out(one.code))
            escaped += escape(one.code);
        else
            escaped += text.substr(0, bytes);
        text.remove_prefix(bytes);
    }
    return escaped;
}

std::size_t incomplete_tail(std::string_view bytes) {
    for (std::size_t tail = 1; tail <= std::min<std::size_t>(3, bytes.size()); ++tail) {
        const auto first = static_cast<unsigned char>(bytes[bytes.size() - tail]);
        if ((first & 0xC0U) == 0x80U) continue;  // goes on
        const std::size_t wanted = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
        return wanted > tail ? tail : 0;
    }
    return 0;
}

bool is_utf8(std::string_view bytes) {
    while (!bytes.empty()) {
        const Character one = decode(bytes);
        if (one.bytes == 0) return false;
        bytes.remove_prefix(one.bytes);
    }
    return true;
}

}  // namespace atl::json
