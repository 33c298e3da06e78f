#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// What goes with printable() (printable.h): where text may not be cut down to what is printable.
namespace atl::json {

// Whether printable() would leave the text as it is, and it is one line without a tab: what a name may be.
bool is_printable_line(std::string_view text);

// The JSON text with each character of its strings that printable() would leave out as an escape (\u009b): the same
// value, harmless on a terminal.
std::string printable_json(std::string_view text);

// How many bytes at the end of `bytes` begin a character of UTF-8 that goes on after them: 0 to 3.
std::size_t incomplete_tail(std::string_view bytes);

}  // namespace atl::json
