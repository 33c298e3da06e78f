#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atl {

// "a,,b" is {"a", "b"}.
std::vector<std::string> split_list(std::string_view text);

// "a, b" of {"a", "b"}.
template <class Texts>
std::string join(const Texts& texts, std::string_view separator) {
    std::string all;
    for (const auto& text : texts) all.append(all.empty() ? "" : separator).append(text);
    return all;
}

}  // namespace atl
