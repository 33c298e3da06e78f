#include "shared/numeric/finite.h"

#include <cstdint>
#include <cstring>

namespace atl::numeric {
namespace {

// NaN and the infinities have all bits of the exponent, and no other value has.
template <class Bits>
bool lacks_full_exponent(std::span<const std::byte> bytes, Bits exponent) {
    Bits bad = 0;
    for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
        Bits value;
        std::memcpy(&value, bytes.data() + at, sizeof(Bits));
        bad |= static_cast<Bits>((value & exponent) == exponent);
    }
    return bad == 0;
}

}  // namespace

bool all_finite_f16(std::span<const std::byte> bytes) {
    return lacks_full_exponent<std::uint16_t>(bytes, 0x7C00);
}

bool all_finite_bf16(std::span<const std::byte> bytes) {
    return lacks_full_exponent<std::uint16_t>(bytes, 0x7F80);
}

bool all_finite_f32(std::span<const std::byte> bytes) {
    return lacks_full_exponent<std::uint32_t>(bytes, 0x7F800000);
}

}  // namespace atl::numeric
