#include "shared/base/text.h"

namespace atl {

std::string_view trim(std::string_view text) {
    const auto begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::string join(const std::vector<std::string>& texts, std::string_view separator) {
    std::string all;
    for (std::size_t i = 0; i < texts.size(); ++i) all.append(i == 0 ? "" : separator).append(texts[i]);
    return all;
}

std::string in_quotes(std::string_view text) {
    return "\"" + std::string(text) + "\"";
}

}  // namespace atl
