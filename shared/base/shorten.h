#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atl {

// The text if it has at most `bytes_max` bytes (3 or more), else its beginning, of whole letters of UTF-8, and "…" in
// as many.
std::string shorten(std::string_view text, std::size_t bytes_max);

}  // namespace atl
