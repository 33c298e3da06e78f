#include "shared/base/text.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "shared/base/check.h"

namespace atl {

std::string_view trim(std::string_view text) {
    const auto begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0;;) {
        const std::size_t end = text.find(separator, begin);
        parts.push_back(text.substr(begin, end - begin));
        if (end == std::string_view::npos) return parts;
        begin = end + 1;
    }
}

std::vector<std::string> split_list(std::string_view text) {
    std::vector<std::string> parts;
    while (!text.empty()) {
        const std::size_t comma = std::min(text.find(','), text.size());
        if (comma > 0) parts.emplace_back(text.substr(0, comma));
        text.remove_prefix(std::min(comma + 1, text.size()));
    }
    return parts;
}

std::string in_quotes(std::string_view text) {
    constexpr std::size_t kShownBytesMax = 120;
    std::string quoted = "\"";
    for (const char raw : text.substr(0, kShownBytesMax)) {
        const auto letter = static_cast<unsigned char>(raw);
        std::array<char, 8> escaped{raw};
        if (letter == '"' || letter == '\\') quoted += '\\';
        if (letter < 0x20 || letter >= 0x7f) std::snprintf(escaped.data(), escaped.size(), "\\x%02x", letter);
        quoted += escaped.data();
    }
    return quoted + (text.size() > kShownBytesMax ? "…\"" : "\"");
}

std::string shorten(std::string_view text, std::size_t bytes_max) {
    constexpr std::string_view kMark = "…";
    check(bytes_max >= kMark.size(), "no room for a shortened text");
    if (text.size() <= bytes_max) return std::string(text);
    std::size_t end = bytes_max - kMark.size();
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    return std::string(text.substr(0, end)).append(kMark);
}

std::string number_text(double number) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.10g", number);
    return text.data();
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
    check(!from.empty(), "replace_all: nothing to look for");
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    return text;
}

std::string human_bytes(std::uint64_t bytes) {
    constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
    return text.data();
}

std::string human_seconds(double seconds) {
    std::array<char, 64> text{};
    const auto whole = static_cast<long>(seconds);
    if (seconds < 60) {
        std::snprintf(text.data(), text.size(), "%.1f s", seconds);
    } else if (whole < 3600) {
        std::snprintf(text.data(), text.size(), "%ld m %02ld s", whole / 60, whole % 60);
    } else {
        std::snprintf(text.data(), text.size(), "%ld h %02ld m", whole / 3600, whole / 60 % 60);
    }
    return text.data();
}

}  // namespace atl
