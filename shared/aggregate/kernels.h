#pragma once

#include <cstddef>
#include <span>

// The inner loops of averaging, in fp32, and of sums of squares and of products, in fp64. Every set gives the same
// bits, because multiplication and addition round separately in all of them (the file is compiled without contraction).
namespace atl::aggregate {

struct AdamNumbers {
    float rate, beta1, of_gradient, beta2, of_square, epsilon;  // of_gradient: 1 - beta1; of_square: 1 - beta2
};

struct Kernels {
    const char* name;                                                             // "baseline", "avx2", "avx512"
    void (*scale)(float* sum, const float* in, float weight, std::size_t count);  // sum = weight * in
    void (*add)(float* sum, const float* in, float weight, std::size_t count);    // sum += weight * in
    // sum += weight * (a - base)
    void (*add_part)(float* sum, const float* a, const float* base, float weight, std::size_t count);
    // The server optimizers' steps (strategy.h): `mean` becomes the weights, `momentum` and `variance` the new ones.
    void (*nesterov)(float* mean, float* momentum, const float* base, float rate, float beta, std::size_t count);
    void (*momentum)(float* mean, float* momentum, const float* base, float rate, float beta, std::size_t count);
    void (*adam)(float* mean, float* momentum, float* variance, const float* base, const AdamNumbers& numbers,
                 std::size_t count);
    // a becomes base + part (a - base), in fp64 and rounded once.
    void (*shorten)(float* a, const float* base, double part, std::size_t count);
    // sum += a - base in fp64.
    void (*add_change)(double* sum, const float* a, const float* base, std::size_t count);
    // Of the change d = a - base and what is left of `sum` without it, o = sum - d: Σ d², Σ d o and Σ o² in fp64, each
    // in one order.
    void (*measure)(const float* a, const float* base, const double* sum, std::size_t count, double sums[3]);
    double (*dot)(const double* a, const double* b, std::size_t count);                     // Σ a b, in one order
    void (*add_multiple)(double* sum, double factor, const double* in, std::size_t count);  // sum += factor * in
};

// The sets that this CPU can run, slowest first; the baseline is always there.
std::span<const Kernels> runnable_kernels();
// The best of them.
const Kernels& best_kernels();

}  // namespace atl::aggregate
