// The norms of CpuBackend, in the manner of cpu_layers.cpp.

#include <algorithm>

#include "trainer/kernels/cpu/cpu_backend.h"

namespace atl::kernels::cpu {
namespace {

// Tiles that the gradients of a norm's parameters are cut into, whatever the number of threads.
constexpr std::int64_t kNormTiles = 16;

}  // namespace

void CpuBackend::rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& out,
                                 const Tensor& rstd) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_matrix(out, rows, columns);
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    check_count(rstd, rows);
    for_ranges(rows, rows_per_tile(columns), [&](auto begin, auto end) {
        simd_.rmsnorm_forward({begin, end, columns}, x.f32(), weights, epsilon, out.f32(), rstd.f32());
    });
}

void CpuBackend::add_rmsnorm_forward(const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                                     const Tensor& sum, const Tensor& out, const Tensor& rstd) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_matrix(delta, rows, columns);
    check_matrix(sum, rows, columns);
    check_matrix(out, rows, columns);
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    check_count(rstd, rows);
    for_ranges(rows, rows_per_tile(columns), [&](auto begin, auto end) {
        simd_.add_rmsnorm_forward({begin, end, columns}, x.f32(), delta.f32(), weights, epsilon, sum.f32(), out.f32(),
                                  rstd.f32());
    });
}

void CpuBackend::rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_matrix(out, rows, columns);
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    check_count(rstd, rows);
    for_ranges(rows, rows_per_tile(columns), [&](auto begin, auto end) {
        simd_.rmsnorm_apply({begin, end, columns}, x.f32(), weights, rstd.f32(), out.f32());
    });
}

void CpuBackend::rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                                  const Tensor& residual_gradient, const Tensor& x_gradient,
                                  const Tensor& weight_gradient, bool accumulate) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_matrix(out_gradient, rows, columns);
    check_matrix(x_gradient, rows, columns);
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    check_count(rstd, rows);
    check(weight_gradient.empty() || weight_gradient.element_count() == columns, "a tensor has another size");
    const float* const residual = residual_gradient.empty() ? nullptr : residual_gradient.f32();
    partial_gradients_.assign(static_cast<std::size_t>(kNormTiles * columns), 0.0F);
    const std::int64_t tile = std::max<std::int64_t>(1, (rows + kNormTiles - 1) / kNormTiles);
    for_ranges(rows, tile, [&](auto begin, auto end) {
        simd_.rmsnorm_backward({begin, end, columns}, x.f32(), weights, rstd.f32(), out_gradient.f32(), residual,
                               x_gradient.f32(), partial_gradients_.data() + begin / tile * columns);
    });
    if (weight_gradient.empty()) return;
    if (!accumulate) zero(weight_gradient);
    for (std::int64_t part = 0; part < kNormTiles; ++part) {
        simd_.add(weight_gradient.f32(), partial_gradients_.data() + part * columns, weight_gradient.f32(), columns);
    }
}

void CpuBackend::layernorm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, float epsilon,
                                   const Tensor& out, const Tensor& moments) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_count(out, rows * columns);
    check_count(moments, 2 * rows);
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    const float* const biases = widen_vector(bias, columns, widened_bias_);
    for_ranges(rows, rows_per_tile(columns), [&](auto begin, auto end) {
        simd_.layernorm_forward({begin, end, columns}, x.f32(), weights, biases, epsilon, out.f32(), moments.f32());
    });
}

void CpuBackend::layernorm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& moments,
                                 const Tensor& out) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_count(out, rows * columns);
    check_count(moments, 2 * rows);
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    const float* const biases = widen_vector(bias, columns, widened_bias_);
    for_ranges(rows, rows_per_tile(columns), [&](auto begin, auto end) {
        simd_.layernorm_apply({begin, end, columns}, x.f32(), weights, biases, moments.f32(), out.f32());
    });
}

void CpuBackend::layernorm_backward(const Tensor& x, const Tensor& weight, const Tensor& moments,
                                    const Tensor& out_gradient, const Tensor& residual_gradient,
                                    const Tensor& x_gradient, const Tensor& weight_gradient,
                                    const Tensor& bias_gradient, bool accumulate) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_count(out_gradient, rows * columns);
    check_count(x_gradient, rows * columns);
    check_count(moments, 2 * rows);
    if (!weight_gradient.empty()) check_count(weight_gradient, columns);
    if (!bias_gradient.empty()) check_count(bias_gradient, columns);
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    const float* const residual = residual_gradient.empty() ? nullptr : residual_gradient.f32();
    partial_gradients_.assign(static_cast<std::size_t>(2 * kNormTiles * columns), 0.0F);
    const std::int64_t tile = std::max<std::int64_t>(1, (rows + kNormTiles - 1) / kNormTiles);
    for_ranges(rows, tile, [&](auto begin, auto end) {
        float* const partial = partial_gradients_.data() + begin / tile * 2 * columns;
        simd_.layernorm_backward({begin, end, columns}, x.f32(), weights, moments.f32(), out_gradient.f32(), residual,
                                 x_gradient.f32(), partial, partial + columns);
    });
    const auto add_up = [&](const Tensor& gradient, std::int64_t offset) {
        if (gradient.empty()) return;
        if (!accumulate) zero(gradient);
        for (std::int64_t part = 0; part < kNormTiles; ++part) {
            const float* const partial = partial_gradients_.data() + part * 2 * columns + offset;
            simd_.add(gradient.f32(), partial, gradient.f32(), columns);
        }
    };
    add_up(weight_gradient, 0);
    add_up(bias_gradient, columns);
}

}  // namespace atl::kernels::cpu
