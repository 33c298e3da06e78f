#include "trainer/weights/convert.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "shared/base/check.h"
#include "shared/base/float16.h"

namespace atl::weights {
namespace {

constexpr std::uint32_t kF32Exponent = 0x7f800000;
constexpr std::uint16_t kBF16Exponent = 0x7f80;
constexpr std::uint16_t kF16Exponent = 0x7c00;

// Elements converted between two looks at the exponents: they stay in the first-level cache.
constexpr std::size_t kBlock = 2048;

// True when no element has an exponent of all ones, which NaN and infinity have.
bool all_finite(const std::uint16_t* values, std::size_t count, std::uint16_t exponent) {
    std::uint16_t bad = 0;
    for (std::size_t i = 0; i < count; ++i) bad |= static_cast<std::uint16_t>((values[i] & exponent) == exponent);
    return bad == 0;
}
bool all_finite_floats(const float* values, std::size_t count) {
    std::uint32_t bad = 0;
    for (std::size_t i = 0; i < count; ++i)
        bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & kF32Exponent) == kF32Exponent);
    return bad == 0;
}

void widen_halves_portable(const std::uint16_t* from, float* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = widen_f16(from[i]);
}

void narrow_halves_portable(const float* from, std::uint16_t* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = narrow_f16(from[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void widen_halves_f16c(const std::uint16_t* from, float* to, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    widen_halves_portable(from + i, to + i, count - i);
}

__attribute__((target("avx,f16c"))) void narrow_halves_f16c(const float* from, std::uint16_t* to, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    narrow_halves_portable(from + i, to + i, count - i);
}

const bool kHasF16c = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
#endif

void widen_halves(const std::uint16_t* from, float* to, std::size_t count) {
#if defined(__x86_64__)
    if (kHasF16c) return widen_halves_f16c(from, to, count);
#endif
    widen_halves_portable(from, to, count);
}

void narrow_halves(const float* from, std::uint16_t* to, std::size_t count) {
#if defined(__x86_64__)
    if (kHasF16c) return narrow_halves_f16c(from, to, count);
#endif
    narrow_halves_portable(from, to, count);
}

bool widen_block(DType dtype, const std::byte* bytes, float* out, std::size_t count) {
    if (dtype == DType::kF32) {
        std::memcpy(out, bytes, count * sizeof(float));
        return all_finite_floats(out, count);
    }
    std::uint16_t bits[kBlock];
    std::memcpy(bits, bytes, count * sizeof(std::uint16_t));
    if (dtype == DType::kF16) {
        widen_halves(bits, out, count);
        return all_finite(bits, count, kF16Exponent);
    }
    for (std::size_t i = 0; i < count; ++i) out[i] = widen_bf16(bits[i]);
    return all_finite(bits, count, kBF16Exponent);
}

bool narrow_block(DType dtype, const float* values, std::byte* out, std::size_t count) {
    if (dtype == DType::kF32) {
        std::memcpy(out, values, count * sizeof(float));
        return all_finite_floats(values, count);
    }
    std::uint16_t bits[kBlock];
    if (dtype == DType::kF16) {
        narrow_halves(values, bits, count);
    } else {
        for (std::size_t i = 0; i < count; ++i) bits[i] = narrow_bf16(values[i]);
    }
    std::memcpy(out, bits, count * sizeof(std::uint16_t));
    return all_finite(bits, count, dtype == DType::kF16 ? kF16Exponent : kBF16Exponent);
}

}  // namespace

bool is_weight_dtype(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

bool all_finite(std::span<const float> values) {
    return all_finite_floats(values.data(), values.size());
}

bool widen(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(dtype));
    check(is_weight_dtype(dtype) && bytes.size() == out.size() * width, "widen: sizes or dtype don't match");
    bool finite = true;
    for (std::size_t i = 0; i < out.size(); i += kBlock)
        finite &= widen_block(dtype, bytes.data() + i * width, out.data() + i, std::min(kBlock, out.size() - i));
    return finite;
}

bool narrow(DType dtype, std::span<const float> values, std::span<std::byte> out) {
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(dtype));
    check(is_weight_dtype(dtype) && out.size() == values.size() * width, "narrow: sizes or dtype don't match");
    bool finite = true;
    for (std::size_t i = 0; i < values.size(); i += kBlock)
        finite &= narrow_block(dtype, values.data() + i, out.data() + i * width, std::min(kBlock, values.size() - i));
    return finite;
}

}  // namespace atl::weights
