#include "shared/base/shorten.h"

#include "shared/base/check.h"

namespace atl {
namespace {

constexpr std::string_view kMark = "…";

}  // namespace

std::string shorten(std::string_view text, std::size_t bytes_max) {
    check(bytes_max >= kMark.size(), "no room for a shortened text");
    if (text.size() <= bytes_max) return std::string(text);
    std::size_t end = bytes_max - kMark.size();
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    return std::string(text.substr(0, end)) + std::string(kMark);
}

}  // namespace atl
