#include "shared/base/shell.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "shared/base/text.h"

namespace atl {

std::string shell_word(const std::string& text) {
    const auto is_plain = [](unsigned char c) {
        return std::isalnum(c) != 0 || std::string_view("-_./:=,@%+").find(static_cast<char>(c)) != std::string::npos;
    };
    if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
    return "'" + replace_all(text, "'", "'\\''") + "'";
}

}  // namespace atl
