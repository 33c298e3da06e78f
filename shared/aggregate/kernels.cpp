#include "shared/aggregate/kernels.h"

#include <cmath>
#include <vector>

#include "shared/numeric/cpu_features.h"

#define ATOLL_INLINE inline __attribute__((always_inline))

namespace atl::aggregate {
namespace {

// ---- the loops, which the compiler vectorises, once for each instruction set ----

ATOLL_INLINE void scale_loop(float* sum, const float* in, float weight, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) sum[i] = weight * in[i];
}

ATOLL_INLINE void add_loop(float* sum, const float* in, float weight, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) sum[i] += weight * in[i];
}

ATOLL_INLINE void add_part_loop(float* sum, const float* a, const float* base, float weight, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) sum[i] += weight * (a[i] - base[i]);
}

ATOLL_INLINE void nesterov_loop(float* mean, float* momentum, const float* base, float rate, float beta,
                                std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        const float gradient = base[i] - mean[i];
        const float moved = beta * momentum[i] + gradient;
        momentum[i] = moved;
        mean[i] = base[i] - rate * (gradient + beta * moved);
    }
}

ATOLL_INLINE void momentum_loop(float* mean, float* momentum, const float* base, float rate, float beta,
                                std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        const float moved = beta * momentum[i] + (base[i] - mean[i]);
        momentum[i] = moved;
        mean[i] = base[i] - rate * moved;
    }
}

ATOLL_INLINE void adam_loop(float* mean, float* momentum, float* variance, const float* base,
                            const AdamNumbers& numbers, std::size_t count) {
    const AdamNumbers n = numbers;
    for (std::size_t i = 0; i < count; ++i) {
        const float gradient = base[i] - mean[i];
        const float first = n.beta1 * momentum[i] + n.of_gradient * gradient;
        const float second = n.beta2 * variance[i] + n.of_square * (gradient * gradient);
        momentum[i] = first;
        variance[i] = second;
        mean[i] = base[i] - n.rate * (first / (std::sqrt(second) + n.epsilon));
    }
}

ATOLL_INLINE void shorten_loop(float* a, const float* base, double part, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        const double from = base[i];
        a[i] = static_cast<float>(from + part * (static_cast<double>(a[i]) - from));
    }
}

ATOLL_INLINE void add_change_loop(double* sum, const float* a, const float* base, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) sum[i] += static_cast<double>(a[i]) - static_cast<double>(base[i]);
}

constexpr std::size_t kLanes = 16;  // sums side by side, so that the order does not depend on the vectors' width

ATOLL_INLINE double sum_lanes(double* lanes) {
    for (std::size_t half = kLanes / 2; half > 0; half /= 2)
        for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
}

struct MeasureLanes {
    double own[kLanes] = {}, both[kLanes] = {}, others[kLanes] = {};
};

ATOLL_INLINE void measure_element(MeasureLanes& lanes, std::size_t lane, float a, float base, double sum) {
    const double change = static_cast<double>(a) - static_cast<double>(base);
    const double rest = sum - change;
    lanes.own[lane] += change * change;
    lanes.both[lane] += change * rest;
    lanes.others[lane] += rest * rest;
}

ATOLL_INLINE void measure_loop(const float* a, const float* base, const double* sum, std::size_t count,
                               double sums[3]) {
    MeasureLanes lanes;
    std::size_t at = 0;
    for (; at + kLanes <= count; at += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane)
            measure_element(lanes, lane, a[at + lane], base[at + lane], sum[at + lane]);
    for (; at < count; ++at) measure_element(lanes, at % kLanes, a[at], base[at], sum[at]);
    sums[0] = sum_lanes(lanes.own);
    sums[1] = sum_lanes(lanes.both);
    sums[2] = sum_lanes(lanes.others);
}

ATOLL_INLINE double dot_loop(const double* a, const double* b, std::size_t count) {
    double lanes[kLanes] = {};
    std::size_t at = 0;
    for (; at + kLanes <= count; at += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[at + lane] * b[at + lane];
    for (; at < count; ++at) lanes[at % kLanes] += a[at] * b[at];
    return sum_lanes(lanes);
}

ATOLL_INLINE void add_multiple_loop(double* sum, double factor, const double* in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) sum[i] += factor * in[i];
}

// ---- the sets ----

#define ATOLL_DEFINE_SET(suffix, attribute)                                                                   \
    attribute void scale_##suffix(float* sum, const float* in, float w, std::size_t n) {                      \
        scale_loop(sum, in, w, n);                                                                            \
    }                                                                                                         \
    attribute void add_##suffix(float* sum, const float* in, float w, std::size_t n) {                        \
        add_loop(sum, in, w, n);                                                                              \
    }                                                                                                         \
    attribute void add_part_##suffix(float* sum, const float* a, const float* base, float w, std::size_t n) { \
        add_part_loop(sum, a, base, w, n);                                                                    \
    }                                                                                                         \
    attribute void nesterov_##suffix(float* mean, float* momentum, const float* base, float rate, float beta, \
                                     std::size_t n) {                                                         \
        nesterov_loop(mean, momentum, base, rate, beta, n);                                                   \
    }                                                                                                         \
    attribute void momentum_##suffix(float* mean, float* momentum, const float* base, float rate, float beta, \
                                     std::size_t n) {                                                         \
        momentum_loop(mean, momentum, base, rate, beta, n);                                                   \
    }                                                                                                         \
    attribute void adam_##suffix(float* mean, float* momentum, float* variance, const float* base,            \
                                 const AdamNumbers& numbers, std::size_t n) {                                 \
        adam_loop(mean, momentum, variance, base, numbers, n);                                                \
    }                                                                                                         \
    attribute void shorten_##suffix(float* a, const float* base, double part, std::size_t n) {                \
        shorten_loop(a, base, part, n);                                                                       \
    }                                                                                                         \
    attribute void add_change_##suffix(double* sum, const float* a, const float* base, std::size_t n) {       \
        add_change_loop(sum, a, base, n);                                                                     \
    }                                                                                                         \
    attribute void measure_##suffix(const float* a, const float* base, const double* sum, std::size_t n,      \
                                    double sums[3]) {                                                         \
        measure_loop(a, base, sum, n, sums);                                                                  \
    }                                                                                                         \
    attribute double dot_##suffix(const double* a, const double* b, std::size_t n) {                          \
        return dot_loop(a, b, n);                                                                             \
    }                                                                                                         \
    attribute void add_multiple_##suffix(double* sum, double factor, const double* in, std::size_t n) {       \
        add_multiple_loop(sum, factor, in, n);                                                                \
    }                                                                                                         \
    constexpr Kernels k_##suffix{#suffix,           scale_##suffix,    add_##suffix,                          \
                                 add_part_##suffix, nesterov_##suffix, momentum_##suffix,                     \
                                 adam_##suffix,     shorten_##suffix,  add_change_##suffix,                   \
                                 measure_##suffix,  dot_##suffix,      add_multiple_##suffix};

ATOLL_DEFINE_SET(baseline, )
#if defined(__x86_64__)
ATOLL_DEFINE_SET(avx2, __attribute__((target("avx2"))))
ATOLL_DEFINE_SET(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512"))))
#endif

std::vector<Kernels> find_runnable() {
    std::vector<Kernels> sets{k_baseline};
#if defined(__x86_64__)
    if (numeric::has_avx2()) sets.push_back(k_avx2);
    if (numeric::has_avx512()) sets.push_back(k_avx512);
#endif
    return sets;
}

}  // namespace

std::span<const Kernels> runnable_kernels() {
    static const std::vector<Kernels> sets = find_runnable();
    return sets;
}

const Kernels& best_kernels() {
    return runnable_kernels().back();
}

}  // namespace atl::aggregate
