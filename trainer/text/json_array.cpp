#include "trainer/text/json_array.h"

namespace atl::text {

std::size_t ArrayScanner::find_end(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        const char c = bytes[at];
        if (is_escaped_) {
            is_escaped_ = false;
        } else if (in_text_) {
            is_escaped_ = c == '\\';
            in_text_ = c != '"';
        } else if (c == '"') {
            in_text_ = true;
        } else if (c == '{' || c == '[') {
            ++depth_;
        } else if (depth_ > 0) {
            if (c == '}' || c == ']') --depth_;
        } else if (c == ',' || c == ']') {
            is_closed_ = c == ']';
            return at + 1;
        }
    }
    return std::string_view::npos;
}

}  // namespace atl::text
