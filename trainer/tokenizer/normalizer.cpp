#include "trainer/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "shared/base/check.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

struct CodeRange {
    char32_t first;
    char32_t last;
};

// What normalization touches since Unicode 10 (up to 15.1). To the tables of the reference they are letters like any
// other: nothing moves across them. So a text is normalized piece by piece between them.
constexpr std::array kSinceUnicode10 = {
    CodeRange{0x7fd, 0x7fd},     CodeRange{0x898, 0x89f},     CodeRange{0x8ca, 0x8d3},     CodeRange{0x9fe, 0x9fe},
    CodeRange{0xc3c, 0xc3c},     CodeRange{0xd3b, 0xd3c},     CodeRange{0xeba, 0xeba},     CodeRange{0x1715, 0x1715},
    CodeRange{0x1abf, 0x1ace},   CodeRange{0x1df6, 0x1dfa},   CodeRange{0x32ff, 0x32ff},   CodeRange{0xa7f2, 0xa7f4},
    CodeRange{0xa82c, 0xa82c},   CodeRange{0xab69, 0xab69},   CodeRange{0x10781, 0x10785}, CodeRange{0x10787, 0x107b0},
    CodeRange{0x107b2, 0x107ba}, CodeRange{0x10d24, 0x10d27}, CodeRange{0x10eab, 0x10eac}, CodeRange{0x10efd, 0x10eff},
    CodeRange{0x10f46, 0x10f50}, CodeRange{0x10f82, 0x10f85}, CodeRange{0x11070, 0x11070}, CodeRange{0x1133b, 0x1133b},
    CodeRange{0x1145e, 0x1145e}, CodeRange{0x11839, 0x1183a}, CodeRange{0x11930, 0x11930}, CodeRange{0x11938, 0x11938},
    CodeRange{0x1193d, 0x1193e}, CodeRange{0x11943, 0x11943}, CodeRange{0x119e0, 0x119e0}, CodeRange{0x11a34, 0x11a34},
    CodeRange{0x11a47, 0x11a47}, CodeRange{0x11a99, 0x11a99}, CodeRange{0x11d42, 0x11d42}, CodeRange{0x11d44, 0x11d45},
    CodeRange{0x11d97, 0x11d97}, CodeRange{0x11f41, 0x11f42}, CodeRange{0x16ff0, 0x16ff1}, CodeRange{0x1e030, 0x1e06d},
    CodeRange{0x1e08f, 0x1e08f}, CodeRange{0x1e130, 0x1e136}, CodeRange{0x1e2ae, 0x1e2ae}, CodeRange{0x1e2ec, 0x1e2ef},
    CodeRange{0x1e4ec, 0x1e4ef}, CodeRange{0x1f16c, 0x1f16c}, CodeRange{0x1fbf0, 0x1fbf9}};

bool is_since_unicode_10(char32_t code) {
    const auto* range = std::upper_bound(kSinceUnicode10.begin(), kSinceUnicode10.end(), code,
                                         [](char32_t wanted, const CodeRange& r) { return wanted < r.first; });
    return range != kSinceUnicode10.begin() && code <= (range - 1)->last;
}

utf8proc_option_t utf8proc_options(NormalForm form) {
    const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
    const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
    return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                          (compatible ? UTF8PROC_COMPAT : 0));
}

using Codes = std::vector<utf8proc_int32_t>;

Codes decomposed(std::string_view text, utf8proc_option_t options) {
    constexpr utf8proc_ssize_t kPartsMax = 32;  // no character has more than 18
    Codes codes;
    while (!text.empty()) {
        const CodePoint next = first_code_point(text);
        utf8proc_int32_t parts[kPartsMax];
        int boundary = 0;  // of clusters, which nobody asks for
        const auto count =
            ::utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.code), parts, kPartsMax, options, &boundary);
        check(count > 0 && count <= kPartsMax, "utf8proc_decompose_char fails");
        codes.insert(codes.end(), parts, parts + count);
        text.remove_prefix(next.length);
    }
    return codes;
}

// Marks after a letter in the order of their classes. (utf8proc_map does it, too, in quadratic time.)
void order_marks(Codes& codes) {
    const auto mark_class = [](utf8proc_int32_t code) { return ::utf8proc_get_property(code)->combining_class; };
    const auto is_mark = [&](utf8proc_int32_t code) { return mark_class(code) != 0; };
    for (auto begin = codes.begin(); begin != codes.end();) {
        begin = std::find_if(begin, codes.end(), is_mark);
        const auto end = std::find_if_not(begin, codes.end(), is_mark);
        std::stable_sort(begin, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
        begin = end;
    }
}

void append_normalized(std::string_view text, NormalForm form, std::string& result) {
    const utf8proc_option_t options = utf8proc_options(form);
    Codes codes = decomposed(text, options);
    order_marks(codes);
    const auto count = ::utf8proc_normalize_utf32(codes.data(), std::ssize(codes), options);
    check(count >= 0 && count <= std::ssize(codes), "utf8proc_normalize_utf32 fails");
    codes.resize(static_cast<std::size_t>(count));
    for (const utf8proc_int32_t code : codes) {
        utf8proc_uint8_t bytes[4];
        const auto length = ::utf8proc_encode_char(code, bytes);
        result.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
    }
}

// No character below U+0300 changes in NFC, none of ASCII in any form.
bool is_normalized_already(std::string_view text, NormalForm form) {
    const unsigned char limit = form == NormalForm::kNfc ? 0xcc : 0x80;  // U+0300 begins with the byte 0xcc
    return std::all_of(text.begin(), text.end(), [&](char c) { return static_cast<unsigned char>(c) < limit; });
}

}  // namespace

std::optional<NormalForm> parse_normal_form(std::string_view name) {
    if (name == "NFC") return NormalForm::kNfc;
    if (name == "NFD") return NormalForm::kNfd;
    if (name == "NFKC") return NormalForm::kNfkc;
    if (name == "NFKD") return NormalForm::kNfkd;
    return std::nullopt;
}

std::string normalized(std::string_view text, NormalForm form) {
    if (is_normalized_already(text, form)) return std::string(text);
    std::string result;
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint next = first_code_point(text.substr(at));
        if (is_since_unicode_10(next.code)) {
            append_normalized(text.substr(done, at - done), form, result);
            result.append(text.substr(at, next.length));
            done = at + next.length;
        }
        at += next.length;
    }
    append_normalized(text.substr(done), form, result);
    return result;
}

}  // namespace atl::tokenizer
