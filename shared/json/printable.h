#pragma once

#include <string>
#include <string_view>

namespace atl::json {

// Text of unknown origin as valid UTF-8 without control characters other than newline and tab, and without characters
// that nobody sees, by which two names could look alike: whatever somebody else
// says goes through it before it is kept, as the database takes nothing else.
std::string printable(std::string_view bytes);

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view bytes);

}  // namespace atl::json
