#include "shared/numeric/conversions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "shared/numeric/testing/random_floats.h"

namespace atl::numeric {
namespace {

std::vector<float> widen_all(void (*widen)(float*, const std::byte*, std::size_t)) {
    std::vector<std::uint16_t> stored(65536);
    for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::uint16_t>(i);
    std::vector<float> values(stored.size());
    widen(values.data(), std::as_bytes(std::span(stored)).data(), stored.size());
    return values;
}

std::vector<std::uint16_t> narrow_all(void (*narrow)(std::byte*, const float*, std::size_t),
                                      const std::vector<float>& values) {
    std::vector<std::uint16_t> stored(values.size());
    narrow(std::as_writable_bytes(std::span(stored)).data(), values.data(), values.size());
    return stored;
}

// What the format says, from its definition: (-1)^s 2^(e-15) 1.m, e = 0 denormal.
float half_value(std::uint32_t half) {
    const int exponent = static_cast<int>((half >> 10) & 31);
    const int mantissa = static_cast<int>(half & 1023);
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                          : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
    return (half & 0x8000U) != 0 ? -magnitude : magnitude;
}

bool is_finite_half(std::size_t half) {
    return (half & 0x7c00U) != 0x7c00U;
}

TEST(ConversionsTest, EveryHalfWidensToItsValueInEverySet) {
    for (const Conversions& set : runnable_conversions()) {
        const std::vector<float> values = widen_all(set.widen_f16);
        for (std::uint32_t half = 0; half < 65536; ++half) {
            if (is_finite_half(half)) {
                ASSERT_EQ(std::bit_cast<std::uint32_t>(values[half]), std::bit_cast<std::uint32_t>(half_value(half)))
                    << set.name << " " << half;
            } else {
                ASSERT_FALSE(std::isfinite(values[half])) << set.name << " " << half;
            }
        }
    }
}

TEST(ConversionsTest, EveryFiniteHalfAndBfloatComesBackAsItWas) {
    for (const Conversions& set : runnable_conversions()) {
        const auto halves = narrow_all(set.narrow_f16, widen_all(set.widen_f16));
        const auto bfloats = narrow_all(set.narrow_bf16, widen_all(set.widen_bf16));
        for (std::size_t i = 0; i < 65536; ++i) {
            if (is_finite_half(i)) {
                ASSERT_EQ(halves[i], i) << set.name;
            }
            if ((i & 0x7f80U) != 0x7f80U) {
                ASSERT_EQ(bfloats[i], i) << set.name;
            }
        }
    }
}

TEST(ConversionsTest, TiesRoundToTheEvenNeighbour) {
    // Between 1 (0x3c00) and the next halves 0x3c01, 0x3c02; between bfloats 0x3f80, 0x3f81, 0x3f82; half overflow.
    const std::vector<float> halves = {1 + 0x1p-11F, 1 + 3 * 0x1p-11F, 0x1p-25F, 3 * 0x1p-25F, 65519.996F, 65520.0F};
    const std::vector<float> bfloats = {1 + 0x1p-8F, 1 + 3 * 0x1p-8F};
    for (const Conversions& set : runnable_conversions()) {
        EXPECT_EQ(narrow_all(set.narrow_f16, halves),
                  (std::vector<std::uint16_t>{0x3c00, 0x3c02, 0x0000, 0x0002, 0x7bff, 0x7c00}))
            << set.name;
        EXPECT_EQ(narrow_all(set.narrow_bf16, bfloats), (std::vector<std::uint16_t>{0x3f80, 0x3f82})) << set.name;
    }
}

TEST(ConversionsTest, AllSetsGiveTheSameBits) {
    const Conversions& baseline = runnable_conversions().front();
    const std::vector<float> values = random_floats(100003);  // odd: the loops' tails count too
    for (const Conversions& set : runnable_conversions()) {
        const auto bfloats = narrow_all(baseline.narrow_bf16, values);
        EXPECT_EQ(narrow_all(set.narrow_f16, values), narrow_all(baseline.narrow_f16, values)) << set.name;
        EXPECT_EQ(narrow_all(set.narrow_bf16, values), bfloats) << set.name;
        EXPECT_EQ(narrow_all(set.narrow_finite_bf16, values), bfloats) << set.name;
    }
}

TEST(ConversionsTest, NoNumberStaysNoNumber) {
    // Payloads in the low bits, which rounding alone would lose or carry into the sign.
    const std::vector<float> values = {NAN,
                                       -NAN,
                                       std::bit_cast<float>(0x7f800001U),
                                       std::bit_cast<float>(0x7fffffffU),
                                       std::bit_cast<float>(0xff800001U),
                                       std::bit_cast<float>(0xffffffffU)};
    for (const Conversions& set : runnable_conversions()) {
        for (const std::uint16_t half : narrow_all(set.narrow_f16, values))
            EXPECT_GT(half & 0x7fffU, 0x7c00U) << set.name;
        for (const std::uint16_t bfloat : narrow_all(set.narrow_bf16, values))
            EXPECT_GT(bfloat & 0x7fffU, 0x7f80U) << set.name;
    }
}

TEST(ConversionsTest, OneNonFiniteNumberIsSeenWhereverItIs) {
    for (const Conversions& set : runnable_conversions()) {
        std::vector<float> values(67, 1.0F);
        EXPECT_TRUE(set.all_finite(values.data(), values.size()));
        for (std::size_t at = 0; at < values.size(); ++at) {
            for (const float bad : {INFINITY, -INFINITY, NAN, -NAN}) {
                values[at] = bad;
                EXPECT_FALSE(set.all_finite(values.data(), values.size())) << set.name << " " << at;
            }
            values[at] = -3.4e38F;
        }
    }
}

}  // namespace
}  // namespace atl::numeric
