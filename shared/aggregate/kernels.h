#pragma once

#include <cstddef>
#include <span>

// The inner loops of averaging, in fp32 but for sums of squares. Every set gives the same bits, because multiplication
// and addition round separately in all of them (the file is compiled without contraction).
namespace atl::aggregate {

struct Kernels {
    const char* name;                                                             // "baseline", "avx2", "avx512"
    void (*scale)(float* sum, const float* in, float weight, std::size_t count);  // sum = weight * in
    void (*add)(float* sum, const float* in, float weight, std::size_t count);    // sum += weight * in
    // The server optimizer's step (aggregator.h): `mean` becomes the weights, `momentum` the new momentum.
    void (*nesterov)(float* mean, float* momentum, const float* base, float rate, float beta, std::size_t count);
    // Σ (a - b)² in fp64, in one order.
    double (*squared_distance)(const float* a, const float* b, std::size_t count);
};

// The sets that this CPU can run, slowest first; the baseline is always there.
std::span<const Kernels> runnable_kernels();
// The best of them.
const Kernels& best_kernels();

}  // namespace atl::aggregate
