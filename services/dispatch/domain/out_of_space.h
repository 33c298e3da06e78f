#pragma once

#include <string_view>

namespace atl::dispatch {

// Whether a program says that a disk is full, or a quota of bytes or files used up.
inline bool is_out_of_space(std::string_view said) {
    return said.find("No space left on device") != std::string_view::npos ||
           said.find("uota exceeded") != std::string_view::npos;
}

}  // namespace atl::dispatch
