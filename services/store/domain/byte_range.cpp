#include "services/store/domain/byte_range.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace atl::store {
namespace {

bool parse_number(std::string_view text, std::uint64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<ByteRange> parse_range(const std::string& header, std::uint64_t size) {
    const ByteRange whole{0, size};
    if (!header.starts_with("bytes=")) return whole;
    const std::string_view spec = std::string_view(header).substr(6);
    const auto dash = spec.find('-');
    if (dash == std::string_view::npos) return whole;
    std::uint64_t first = 0;
    std::uint64_t last = size == 0 ? 0 : size - 1;
    if (dash == 0) {
        std::uint64_t suffix = 0;
        if (!parse_number(spec.substr(1), suffix)) return whole;
        first = size - std::min(suffix, size);
    } else {
        if (!parse_number(spec.substr(0, dash), first)) return whole;
        if (dash + 1 < spec.size() && !parse_number(spec.substr(dash + 1), last)) return whole;
    }
    if (first >= size || last < first) return invalid_argument("Range", "lies outside the blob");
    return ByteRange{first, std::min(last + 1, size)};
}

}  // namespace atl::store
