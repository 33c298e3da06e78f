#pragma once

#include <string>

namespace atl {

// As one word of a shell's command, in quotes only where it needs them.
std::string shell_word(const std::string& text);

}  // namespace atl
