#pragma once

#include "shared/base/check.h"
#include "trainer/kernels/backend.h"

// What backends check of their operands, and draw by, alike.
namespace atl::kernels {

struct MatmulShape {
    std::int64_t m, n, k;  // c [m, n] = op(a) [m, k] · op(b) [k, n]
};

inline MatmulShape matmul_shape(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c) {
    const MatmulShape shape{c.rows(), c.columns(), transpose_a ? a.rows() : a.columns()};
    check((transpose_a ? a.columns() : a.rows()) == shape.m, "matmul: a and c differ in rows");
    check((transpose_b ? b.rows() : b.columns()) == shape.n, "matmul: b and c differ in columns");
    check((transpose_b ? b.columns() : b.rows()) == shape.k, "matmul: a and b differ in the inner dimension");
    return shape;
}

inline void check_dequantized(const Tensor& from, const Tensor& to) {
    check(tensor::is_quantized(from.dtype()) && to.contiguous() && to.rows() == from.rows() &&
              to.columns() == from.columns(),
          "dequantize takes a quantised matrix and a dense one of its shape");
}

// An optimizer step draws for weights by its seed and this, beside the draws for moments, which take both halves of a
// word of the seed's.
inline constexpr std::uint64_t kOfWeights = 0x9E3779B97F4A7C15;

inline void check_range(const OptimizerRange& range) {
    const auto fits = [&](const Tensor& x) {
        return x.empty() || (x.contiguous() && x.element_count() == range.weights.element_count());
    };
    check(fits(range.gradients) && fits(range.first_moments) && fits(range.second_moments) && fits(range.stored),
          "an optimizer step takes ranges of equal length");
    for (const Tensor& state : {range.weights, range.first_moments, range.second_moments}) {
        check(state.empty() || state.dtype() == tensor::DType::kF32 || state.dtype() == tensor::DType::kBF16,
              "what an optimizer updates is fp32 or bf16");
    }
}

// A step's scalars, where whoever reads them reaches their memory.
inline StepScalars* scalars_of(const Tensor& scalars) {
    check(scalars.contiguous() && scalars.element_count() == kStepScalars, "not the scalars of a step");
    return reinterpret_cast<StepScalars*>(scalars.f64());
}

}  // namespace atl::kernels
