#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atl {

// "a,,b" is {"a", "b"}.
std::vector<std::string> split_list(std::string_view text);

}  // namespace atl
