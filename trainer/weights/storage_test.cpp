#include "trainer/weights/storage.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace atl::weights {
namespace {

// What the format's definition says: mantissa and exponent, computed in double.
double half_value(std::uint16_t half) {
    const int exponent = (half >> 10) & 31;
    const int mantissa = half & 1023;
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

bool is_finite_half(std::uint16_t half) {
    return (half & 0x7c00) != 0x7c00;
}

// Nearest multiple of the format's step at this magnitude, ties to even (the rounding mode of nearbyint).
double rounded(double value, int mantissa_bits, int exponent_min) {
    if (value == 0) return value;
    const int exponent = std::max(std::ilogb(value), exponent_min);
    const int step = exponent - mantissa_bits;
    return std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
}

// In pieces of one element and as a whole: the tail of a vectorised loop is another code path.
std::vector<float> widen_all(DType dtype, const std::vector<std::uint16_t>& values, std::size_t piece) {
    std::vector<float> out(values.size());
    const auto bytes = std::as_bytes(std::span(values));
    for (std::size_t i = 0; i < values.size(); i += piece) {
        const std::size_t count = std::min(piece, values.size() - i);
        EXPECT_TRUE(widen(dtype, bytes.subspan(2 * i, 2 * count), std::span(out).subspan(i, count)));
    }
    return out;
}

std::vector<std::uint16_t> narrow_all(DType dtype, const std::vector<float>& values, std::size_t piece) {
    std::vector<std::uint16_t> out(values.size());
    const auto bytes = std::as_writable_bytes(std::span(out));
    for (std::size_t i = 0; i < values.size(); i += piece) {
        const std::size_t count = std::min(piece, values.size() - i);
        EXPECT_TRUE(narrow(dtype, std::span(values).subspan(i, count), bytes.subspan(2 * i, 2 * count)));
    }
    return out;
}

// Values around every rounding decision: halves, their middles and the neighbours of both, and random bits.
std::vector<float> probes(double largest) {
    std::vector<float> values;
    std::mt19937 random(3);
    for (int i = 0; i < 65536; ++i) {
        const auto half = static_cast<std::uint16_t>(i);
        if (is_finite_half(half)) {
            const auto middle =
                static_cast<float>((half_value(half) + half_value(static_cast<std::uint16_t>(half + 1))) / 2);
            for (const float value : {static_cast<float>(half_value(half)), middle})
                for (const float toward : {-INFINITY, 0.0F, INFINITY}) values.push_back(std::nextafter(value, toward));
        }
        values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
        values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0xffff8000U));  // ties of bf16
    }
    std::erase_if(values, [&](float value) { return !(std::abs(value) <= largest); });
    return values;
}

TEST(StorageTest, EveryHalfWidensToItsValue) {
    std::vector<std::uint16_t> halves;
    for (int i = 0; i < 65536; ++i)
        if (is_finite_half(static_cast<std::uint16_t>(i))) halves.push_back(static_cast<std::uint16_t>(i));
    for (const std::size_t piece : {std::size_t{1}, halves.size()}) {
        const auto floats = widen_all(DType::kF16, halves, piece);
        for (std::size_t i = 0; i < halves.size(); ++i) {
            ASSERT_EQ(floats[i], half_value(halves[i])) << halves[i];
            ASSERT_EQ(std::signbit(floats[i]), (halves[i] & 0x8000) != 0);
        }
        ASSERT_EQ(narrow_all(DType::kF16, floats, piece), halves) << "and back";
    }
}

TEST(StorageTest, HalvesRoundToNearestEven) {
    const auto values = probes(65519.9);
    for (const std::size_t piece : {std::size_t{1}, values.size()}) {
        const auto halves = narrow_all(DType::kF16, values, piece);
        for (std::size_t i = 0; i < values.size(); ++i) {
            ASSERT_EQ(half_value(halves[i]), rounded(values[i], 10, -14)) << values[i];
            ASSERT_EQ((halves[i] & 0x8000) != 0, std::signbit(values[i])) << values[i];
        }
    }
}

TEST(StorageTest, Bf16RoundsToNearestEvenAndWidensBack) {
    const auto values = probes(3.3895e38);
    const auto narrowed = narrow_all(DType::kBF16, values, values.size());
    const auto widened = widen_all(DType::kBF16, narrowed, narrowed.size());
    for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(static_cast<double>(widened[i]), rounded(values[i], 7, -126)) << values[i];
    EXPECT_EQ(narrow_all(DType::kBF16, widened, 1), narrowed);
}

TEST(StorageTest, WhatIsNotFiniteIsReported) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        const auto width = static_cast<std::size_t>(safetensors::size_bytes(dtype));
        std::vector<std::byte> bytes(20 * width);
        for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
            for (const std::size_t at : {0U, 19U}) {
                std::vector<float> values(20, 1.5F);
                EXPECT_TRUE(narrow(dtype, values, bytes));
                values[at] = bad;
                EXPECT_FALSE(narrow(dtype, values, bytes)) << to_string(dtype);
                EXPECT_FALSE(widen(dtype, bytes, values)) << to_string(dtype);
                EXPECT_EQ(std::isnan(values[at]), std::isnan(bad)) << to_string(dtype);
            }
        }
    }
    std::byte out[2];
    const float fits[] = {65519.9F};
    const float overflows[] = {65520.0F};
    EXPECT_TRUE(narrow(DType::kF16, fits, out));
    EXPECT_FALSE(narrow(DType::kF16, overflows, out));
    const float beyond_bf16[] = {3.4028234e38F};
    EXPECT_FALSE(narrow(DType::kBF16, beyond_bf16, out));
}

}  // namespace
}  // namespace atl::weights
