#include "services/dispatch/domain/host_key.h"

#include <cstdint>
#include <optional>
#include <sstream>
#include <string_view>

#include "shared/base/text.h"
#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::size_t kKeysMax = 16;
constexpr std::string_view kAuthority = "@cert-authority";

std::optional<std::string> from_base64(std::string_view text) {
    while (text.ends_with('=')) text.remove_suffix(1);
    std::string bytes;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        const std::size_t value = kBase64.find(c);
        if (value == std::string_view::npos) return {};
        bits = bits << 6 | static_cast<std::uint32_t>(value);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        bytes += static_cast<char>(bits >> count & 0xff);
    }
    return bytes;
}

// Without padding, as fingerprints are written.
std::string to_base64(std::string_view bytes) {
    std::string text;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : bytes) {
        bits = bits << 8 | static_cast<unsigned char>(c);
        for (count += 8; count >= 6; count -= 6) text += kBase64[bits >> (count - 6) & 63];
    }
    if (count > 0) text += kBase64[bits << (6 - count) & 63];
    return text;
}

std::string from_hexadecimal(const std::string& text) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
        bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    return bytes;
}

// A key's bytes begin with its type and that type's length.
bool is_key(const std::string& type, const std::string& base64) {
    const auto bytes = from_base64(base64);
    if (type.empty() || type.size() > 255 || !bytes) return false;
    const std::string begin = std::string(3, '\0') + static_cast<char>(type.size()) + type;
    return bytes->size() > begin.size() && bytes->starts_with(begin);
}

}  // namespace

Result<std::string> parse_host_key(const std::string& text, const std::string& field) {
    std::vector<std::string> keys;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string prefix, type, key;
        words >> type;
        if (type.empty()) continue;
        if (type == kAuthority) {
            prefix = type + " ";
            words >> type;
        }
        words >> key;
        if (!is_key(type, key))
            return invalid_argument(field, "must be public host keys, a line each, as \"ssh-ed25519 AAAA…\"");
        keys.push_back(prefix + type + " " + key);
    }
    if (keys.size() > kKeysMax) return invalid_argument(field, "has more than 16 keys");
    return join(keys, "\n");
}

std::vector<std::string> fingerprints(const std::string& host_key) {
    std::vector<std::string> shown;
    std::istringstream lines(host_key);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t space = line.rfind(' ');
        if (space == std::string::npos) continue;
        const auto bytes = from_base64(std::string_view(line).substr(space + 1)).value_or("");
        shown.push_back(line.substr(0, space) + " SHA256:" + to_base64(from_hexadecimal(digest::sha256(bytes))));
    }
    return shown;
}

}  // namespace atl::dispatch
