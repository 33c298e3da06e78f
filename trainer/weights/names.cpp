#include "trainer/weights/names.h"

#include <algorithm>

namespace atl::weights {

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string text = "[";
    for (const std::int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
    return text + "]";
}

bool is_ignorable(std::string_view name, std::span<const std::string> patterns) {
    return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
        return pattern.starts_with('*') ? name.ends_with(pattern.substr(1)) : name == pattern;
    });
}

}  // namespace atl::weights
