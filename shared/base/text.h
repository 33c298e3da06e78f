#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

// Without the blanks, tabs and line ends around it.
std::string_view trim(std::string_view text);

// "a||b" at '|' is {"a", "", "b"}; views of `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

// Not of a text that ends with the statement: its views would point at nothing.
template <std::same_as<std::string> Text>
std::vector<std::string_view> split(Text&& text, char separator) = delete;

// "a,,b" is {"a", "b"}.
std::vector<std::string> split_list(std::string_view text);

// "a, b" of {"a", "b"}.
template <class Texts = std::vector<std::string>>
std::string join(const Texts& texts, std::string_view separator = ", ") {
    std::string all;
    std::size_t count = 0;
    for (const auto& text : texts) all.append(count++ == 0 ? "" : separator).append(text);
    return all;
}

// "\"a\"", for messages: at most 120 bytes of the text, a backslash before quotes and backslashes, and "\x1b" for what
// is not printable ASCII.
std::string in_quotes(std::string_view text);

// The text if it has at most `bytes_max` bytes (3 or more), else its beginning, of whole letters of UTF-8, and "…" in
// as many.
std::string shorten(std::string_view text, std::size_t bytes_max);

// Each `from` (not empty) replaced; what `to` brings in is not looked at again.
std::string replace_all(std::string text, std::string_view from, std::string_view to);

// A number as short as its ten first digits say it: "0.1", "16", "1e-06".
std::string number_text(double number);

// A size as people read it: "1023 B", "8.0 MiB".
std::string human_bytes(std::uint64_t bytes);

// A length of time as people read it: "0.4 s", "3 m 05 s", "2 h 10 m".
std::string human_seconds(double seconds);

}  // namespace atl
