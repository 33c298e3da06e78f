// Vectors of floats in the width of the instruction set that this file is compiled for (GCC's vector extensions). No
// standard header with inline functions may be included here: the linker could keep the copy that was compiled for
// AVX-512 for everybody.

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Vec = float __attribute__((vector_size(kLanes * 4)));
using IntVec = std::int32_t __attribute__((vector_size(kLanes * 4)));
using UnalignedVec = float __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

inline Vec load(const float* from) {
    return *reinterpret_cast<const UnalignedVec*>(from);
}

inline void store(float* to, Vec value) {
    *reinterpret_cast<UnalignedVec*>(to) = value;
}

inline Vec splat(float value) {
    return value - Vec{};
}

// The first `count` < kLanes floats, then `fill`.
inline Vec load_some(const float* from, std::int64_t count, float fill = 0.0F) {
    Vec value = splat(fill);
    for (std::int64_t lane = 0; lane < count; ++lane) value[lane] = from[lane];
    return value;
}

inline void store_some(float* to, Vec value, std::int64_t count) {
    for (std::int64_t lane = 0; lane < count; ++lane) to[lane] = value[lane];
}

inline Vec max(Vec a, Vec b) {
    return a > b ? a : b;
}

inline Vec min(Vec a, Vec b) {
    return a < b ? a : b;
}

inline float sum_lanes(Vec value) {
    float lanes[kLanes];
    store(lanes, value);
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    }
    return lanes[0];
}

inline float max_lanes(Vec value) {
    float largest = value[0];
    for (int lane = 1; lane < kLanes; ++lane) largest = value[lane] > largest ? value[lane] : largest;
    return largest;
}

// Σ f(i) over [0, count) where f gives a vector at i and `some` the last, incomplete one.
template <class Whole, class Some>
inline float sum_over(std::int64_t count, Whole whole, Some some) {
    Vec parts[4]{};
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
        for (int part = 0; part < 4; ++part) parts[part] += whole(i + part * kLanes);
    }
    for (; i + kLanes <= count; i += kLanes) parts[0] += whole(i);
    if (i < count) parts[1] += some(i, count - i);
    return sum_lanes((parts[0] + parts[1]) + (parts[2] + parts[3]));
}

// e^x to about one unit in the last place on [−87, 88]; clamped outside, so e^−∞ is 1.6e−38, not 0. Range reduction to
// |r| ≤ ln2/2 and Cephes' polynomial (https://www.netlib.org/cephes, expf).
inline Vec exp(Vec x) {
    x = min(max(x, splat(-87.0F)), splat(88.0F));
    const Vec shifted = x * 1.44269504088896341F + 12582912.0F;  // 1.5·2^23: rounds to an integer in the low bits
    const Vec n = shifted - 12582912.0F;
    const Vec r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
    Vec p = splat(1.9875691500e-4F);
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    const IntVec exponent = (reinterpret_cast<IntVec>(shifted) << 23) + (127 << 23);  // the upper bits fall out
    return p * reinterpret_cast<Vec>(exponent);
}
