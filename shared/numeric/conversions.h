#pragma once

#include <cstddef>
#include <span>

namespace atl::numeric {

// Loops between fp32 and stored fp16 or bf16. Every set gives the same bits, of numbers. Pointers to stored elements
// may be unaligned: tensors begin wherever a file's header ends.
struct Conversions {
    const char* name;                                                       // "baseline", "avx2", "avx512"
    void (*widen_f16)(float* out, const std::byte* in, std::size_t count);  // exact
    void (*widen_bf16)(float* out, const std::byte* in, std::size_t count);
    // Round to nearest, ties to even; NaN stays NaN.
    void (*narrow_f16)(std::byte* out, const float* in, std::size_t count);
    void (*narrow_bf16)(std::byte* out, const float* in, std::size_t count);
    void (*narrow_finite_bf16)(std::byte* out, const float* in, std::size_t count);  // faster; without NaN
    bool (*all_finite)(const float* in, std::size_t count);
};

// The sets that this CPU can run, slowest first; the baseline is always there.
std::span<const Conversions> runnable_conversions();
// The best of them.
const Conversions& conversions();

}  // namespace atl::numeric
