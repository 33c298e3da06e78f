#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atl {

// Without the blanks, tabs and line ends around it.
std::string_view trim(std::string_view text);
// "a, b, c".
std::string join(const std::vector<std::string>& texts, std::string_view separator = ", ");
// "\"a\"", for messages.
std::string in_quotes(std::string_view text);

}  // namespace atl
