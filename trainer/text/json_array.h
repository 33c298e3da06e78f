#pragma once

#include <cstddef>
#include <string_view>

namespace atl::text {

inline constexpr std::string_view kWhiteSpace = " \t\r\n";  // JSON's

// Finds where the elements of a JSON array end, in bytes that come piece by piece after its "[". Only brackets and
// texts are looked at: an element that is no JSON is left to whoever parses it.
class ArrayScanner {
  public:
    // Where the next element ends: just behind the "," or "]" that follows it, counted from the beginning of `bytes`,
    // which follow what was taken before. npos: later; all of `bytes` belongs to it.
    std::size_t find_end(std::string_view bytes);
    // Whether that was the array's "]".
    bool is_closed() const { return is_closed_; }

  private:
    std::size_t depth_ = 0;
    bool in_text_ = false;
    bool is_escaped_ = false;
    bool is_closed_ = false;
};

}  // namespace atl::text
