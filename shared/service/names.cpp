#include "shared/service/names.h"

#include <algorithm>

#include "shared/json/printable_line.h"

namespace atl::service {
namespace {

constexpr std::size_t kPathBytesMax = 4096;
constexpr const char* kWebAddressRule = "must be an address such as https://host:7443/store or unix:/run/a.sock:/store";

bool is_lower_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

}  // namespace

bool is_name(std::string_view text) {
    if (text.empty() || text.size() > 63 || !is_lower_or_digit(text.front())) return false;
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return is_lower_or_digit(c) || c == '.' || c == '_' || c == '-'; });
}

Status check_name(std::string_view text, const std::string& field) {
    if (!is_name(text)) return invalid_argument(field, kNameRule);
    if (text == "newest") return invalid_argument(field, "'newest' always means the newest one; choose another");
    return {};
}

std::string required_name(json::ObjectReader& reader, const char* key) {
    std::string name = reader.required_string(key);
    if (!is_name(name)) reader.fail(key, kNameRule);
    return name;
}

bool is_version_name(std::string_view text) {
    constexpr std::size_t kDigestCharacters = 64;
    const bool is_hexadecimal = text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
    return is_name(text) || (!text.empty() && text.size() <= kDigestCharacters && is_hexadecimal);
}

bool is_web_address(std::string_view text) {
    for (const std::string_view scheme : {"http://", "https://", "unix:/"})
        if (text.starts_with(scheme) && text.size() > scheme.size()) return true;
    return false;
}

std::string required_web_address(json::ObjectReader& reader, const char* key) {
    std::string address = reader.required_string(key);
    if (!is_web_address(address)) reader.fail(key, kWebAddressRule);
    return address;
}

bool is_safe_relative_path(std::string_view path) {
    if (path.empty() || path.size() > kPathBytesMax || !json::is_printable_line(path)) return false;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        const std::string_view segment = path.substr(begin, end - begin);
        if (segment.empty() || segment == "." || segment == "..") return false;
        begin = end + 1;
    }
    return true;
}

}  // namespace atl::service
