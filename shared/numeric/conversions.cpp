#include "shared/numeric/conversions.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "shared/numeric/cpu_features.h"
#include "shared/numeric/float16.h"

#define ATOLL_INLINE inline __attribute__((always_inline))

namespace atl::numeric {
namespace {

// ---- the loops, which the compiler vectorises, once for each instruction set ----

ATOLL_INLINE std::uint16_t load_u16(const std::byte* at) {
    std::uint16_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

ATOLL_INLINE void store_u16(std::byte* at, std::uint16_t value) {
    std::memcpy(at, &value, sizeof value);
}

ATOLL_INLINE void widen_f16_loop(float* out, const std::byte* in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = widen_f16(load_u16(in + 2 * i));
}

ATOLL_INLINE void narrow_f16_loop(std::byte* out, const float* in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) store_u16(out + 2 * i, narrow_f16(in[i]));
}

ATOLL_INLINE void widen_bf16_loop(float* out, const std::byte* in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = widen_bf16(load_u16(in + 2 * i));
}

ATOLL_INLINE void narrow_bf16_loop(std::byte* out, const float* in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) store_u16(out + 2 * i, narrow_bf16(in[i]));
}

// Without a look at NaN it takes half the time.
ATOLL_INLINE void narrow_finite_bf16_loop(std::byte* out, const float* in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(in[i]);
        store_u16(out + 2 * i, static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16));
    }
}

ATOLL_INLINE bool all_finite_loop(const float* in, std::size_t count) {
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i)
        largest = std::max(largest, std::bit_cast<std::int32_t>(in[i]) & std::int32_t{0x7fffffff});
    return largest < std::int32_t{0x7f800000};
}

// ---- the sets ----

#define ATOLL_DEFINE_COMMON(suffix, attribute)                                                   \
    attribute void widen_bf16_##suffix(float* out, const std::byte* in, std::size_t n) {         \
        widen_bf16_loop(out, in, n);                                                             \
    }                                                                                            \
    attribute void narrow_bf16_##suffix(std::byte* out, const float* in, std::size_t n) {        \
        narrow_bf16_loop(out, in, n);                                                            \
    }                                                                                            \
    attribute void narrow_finite_bf16_##suffix(std::byte* out, const float* in, std::size_t n) { \
        narrow_finite_bf16_loop(out, in, n);                                                     \
    }                                                                                            \
    attribute bool all_finite_##suffix(const float* in, std::size_t n) {                         \
        return all_finite_loop(in, n);                                                           \
    }

#define ATOLL_CONVERSIONS(suffix)                                                                    \
    Conversions {                                                                                    \
        #suffix, widen_f16_##suffix, widen_bf16_##suffix, narrow_f16_##suffix, narrow_bf16_##suffix, \
            narrow_finite_bf16_##suffix, all_finite_##suffix                                         \
    }

ATOLL_DEFINE_COMMON(baseline, )
void widen_f16_baseline(float* out, const std::byte* in, std::size_t n) {
    widen_f16_loop(out, in, n);
}
void narrow_f16_baseline(std::byte* out, const float* in, std::size_t n) {
    narrow_f16_loop(out, in, n);
}

#if defined(__x86_64__)
#define ATOLL_AVX2 __attribute__((target("avx2,f16c")))
ATOLL_DEFINE_COMMON(avx2, ATOLL_AVX2)
ATOLL_AVX2 void widen_f16_avx2(float* out, const std::byte* in, std::size_t n) {
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i))));
    widen_f16_loop(out + i, in + 2 * i, n - i);
}
ATOLL_AVX2 void narrow_f16_avx2(std::byte* out, const float* in, std::size_t n) {
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    narrow_f16_loop(out + 2 * i, in + i, n - i);
}

#ifdef __clang__  // does not know the width as a target; only fuzzers are built with it
#define ATOLL_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,f16c")))
#else
#define ATOLL_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,f16c,prefer-vector-width=512")))
#endif
ATOLL_DEFINE_COMMON(avx512, ATOLL_AVX512)
ATOLL_AVX512 void widen_f16_avx512(float* out, const std::byte* in, std::size_t n) {
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 2 * i))));
    widen_f16_loop(out + i, in + 2 * i, n - i);
}
ATOLL_AVX512 void narrow_f16_avx512(std::byte* out, const float* in, std::size_t n) {
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    narrow_f16_loop(out + 2 * i, in + i, n - i);
}
#endif

std::vector<Conversions> find_conversions() {
    std::vector<Conversions> sets{ATOLL_CONVERSIONS(baseline)};
#if defined(__x86_64__)
    if (has_avx2()) sets.push_back(ATOLL_CONVERSIONS(avx2));
    if (has_avx512()) sets.push_back(ATOLL_CONVERSIONS(avx512));
#endif
    return sets;
}

}  // namespace

std::span<const Conversions> runnable_conversions() {
    static const std::vector<Conversions> sets = find_conversions();
    return sets;
}

const Conversions& conversions() {
    return runnable_conversions().back();
}

}  // namespace atl::numeric
