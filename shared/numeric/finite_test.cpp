#include "shared/numeric/finite.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace atl::numeric {
namespace {

using Check = bool (*)(std::span<const std::byte>);

// Every place of an unaligned buffer whose other elements are the largest numbers.
template <class Bits>
void expect_told(Check check, Bits largest, const std::vector<Bits>& not_finite) {
    constexpr std::size_t kCount = 37;
    std::vector<std::byte> bytes(1 + kCount * sizeof(Bits));
    const std::span<std::byte> values(bytes.data() + 1, kCount * sizeof(Bits));
    for (std::size_t i = 0; i < kCount; ++i) std::memcpy(values.data() + i * sizeof(Bits), &largest, sizeof(Bits));
    EXPECT_TRUE(check(values));
    for (std::size_t i = 0; i < kCount; ++i)
        for (const Bits bad : not_finite) {
            std::memcpy(values.data() + i * sizeof(Bits), &bad, sizeof(Bits));
            EXPECT_FALSE(check(values)) << i;
            EXPECT_EQ(check(values.first(i * sizeof(Bits) + 1)), true) << "a part of an element";
            std::memcpy(values.data() + i * sizeof(Bits), &largest, sizeof(Bits));
        }
}

TEST(FiniteTest, NanAndInfinityAreToldWhereverTheyAre) {
    expect_told<std::uint16_t>(all_finite_f16, 0x7bff, {0x7c00, 0xfc00, 0x7e01, 0xfc01});
    expect_told<std::uint16_t>(all_finite_bf16, 0xff7f, {0x7f80, 0xff80, 0x7fc0, 0x7f81});
    expect_told<std::uint32_t>(all_finite_f32, 0x7f7fffff, {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001});
}

}  // namespace
}  // namespace atl::numeric
