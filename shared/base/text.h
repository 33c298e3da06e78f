#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

// Without the blanks, tabs and line ends around it.
std::string_view trim(std::string_view text);

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

// "\"a\"", for messages.
std::string in_quotes(std::string_view text);

}  // namespace atl
