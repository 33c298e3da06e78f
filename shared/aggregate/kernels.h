#pragma once

#include <cstddef>
#include <span>

// The inner loops of averaging: widening to fp32, weighted sums, rounding back. Every set gives the same bits, because
// multiplication and addition round separately in all of them (the file is compiled without contraction).
namespace atl::aggregate {

// Pointers to stored elements may be unaligned: tensors begin wherever a file's header ends.
struct Kernels {
    const char* name;  // "baseline", "avx2", "avx512"
    void (*widen_f16)(float* out, const std::byte* in, std::size_t count);
    void (*widen_bf16)(float* out, const std::byte* in, std::size_t count);
    // Round to nearest, ties to even. The input is finite.
    void (*narrow_f16)(std::byte* out, const float* in, std::size_t count);
    void (*narrow_bf16)(std::byte* out, const float* in, std::size_t count);
    void (*scale)(float* sum, const float* in, float weight, std::size_t count);  // sum = weight * in
    void (*add)(float* sum, const float* in, float weight, std::size_t count);    // sum += weight * in
    // The outer step (average.h): `mean` becomes the weights, `momentum` the new momentum.
    void (*nesterov)(float* mean, float* momentum, const float* base, float rate, float beta, std::size_t count);
    bool (*all_finite)(const float* in, std::size_t count);
};

// The sets that this CPU can run, slowest first; the baseline is always there.
std::span<const Kernels> runnable_kernels();
// The best of them.
const Kernels& best_kernels();

}  // namespace atl::aggregate
