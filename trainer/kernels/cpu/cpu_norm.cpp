// The norms of CpuBackend, in the manner of cpu_layers.cpp.

#include <algorithm>

#include "trainer/kernels/cpu/cpu_backend.h"

namespace atl::kernels::cpu {

// body(rows of a tile, the weight in fp32). Each of `like_x` has the shape of x; `statistics` are so many a row.
template <class Body>
void CpuBackend::norm_rows(const Tensor& x, const Tensor& weight, std::initializer_list<Tensor> like_x,
                           const Tensor& statistics, std::int64_t statistics_per_row, Body&& body) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    for (const Tensor& other : like_x) check_matrix(other, rows, columns);
    check_count(statistics, rows * statistics_per_row);
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    for_ranges(rows, rows_per_tile(columns),
               [&](auto begin, auto end) { body(NormRows{begin, end, columns}, weights); });
}

// body(rows of a tile, the weight in fp32, the residual's gradient or null, the tile's part of `gradients`). The parts
// are added up in the order of the tiles, which are as many whatever the number of threads.
template <class Body>
void CpuBackend::norm_rows_backward(const Tensor& x, const Tensor& weight, std::initializer_list<Tensor> like_x,
                                    const Tensor& residual_gradient, std::initializer_list<Tensor> gradients,
                                    bool accumulate, Body&& body) {
    constexpr std::int64_t kTiles = 16;
    const std::int64_t rows = x.rows(), columns = x.columns(), width = std::ssize(gradients) * columns;
    for (const Tensor& other : like_x) check_matrix(other, rows, columns);
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    const float* const residual = residual_gradient.empty() ? nullptr : residual_gradient.f32();
    partial_gradients_.assign(static_cast<std::size_t>(kTiles * width), 0.0F);
    const std::int64_t tile = std::max<std::int64_t>(1, (rows + kTiles - 1) / kTiles);
    for_ranges(rows, tile, [&](auto begin, auto end) {
        body(NormRows{begin, end, columns}, weights, residual, partial_gradients_.data() + begin / tile * width);
    });
    const float* partial = partial_gradients_.data();
    for (const Tensor& gradient : gradients) {
        if (!gradient.empty()) {
            check_count(gradient, columns);
            if (!accumulate) zero(gradient);
            for (std::int64_t part = 0; part < kTiles; ++part)
                simd_.add(gradient.f32(), partial + part * width, gradient.f32(), columns);
        }
        partial += columns;
    }
}

void CpuBackend::rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& out,
                                 const Tensor& rstd) {
    norm_rows(x, weight, {out}, rstd, 1, [&](NormRows rows, const float* weights) {
        simd_.rmsnorm_forward(rows, x.f32(), weights, epsilon, out.f32(), rstd.f32());
    });
}

void CpuBackend::add_rmsnorm_forward(const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                                     const Tensor& sum, const Tensor& out, const Tensor& rstd) {
    norm_rows(x, weight, {delta, sum, out}, rstd, 1, [&](NormRows rows, const float* weights) {
        simd_.add_rmsnorm_forward(rows, x.f32(), delta.f32(), weights, epsilon, sum.f32(), out.f32(), rstd.f32());
    });
}

void CpuBackend::rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out) {
    norm_rows(x, weight, {out}, rstd, 1, [&](NormRows rows, const float* weights) {
        simd_.rmsnorm_apply(rows, x.f32(), weights, rstd.f32(), out.f32());
    });
}

void CpuBackend::rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                                  const Tensor& residual_gradient, const Tensor& x_gradient,
                                  const Tensor& weight_gradient, bool accumulate) {
    check_count(rstd, x.rows());
    norm_rows_backward(x, weight, {out_gradient, x_gradient}, residual_gradient, {weight_gradient}, accumulate,
                       [&](NormRows rows, const float* weights, const float* residual, float* partial) {
                           simd_.rmsnorm_backward(rows, x.f32(), weights, rstd.f32(), out_gradient.f32(), residual,
                                                  x_gradient.f32(), partial);
                       });
}

void CpuBackend::layernorm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, float epsilon,
                                   const Tensor& out, const Tensor& moments) {
    const float* const biases = widen_vector(bias, x.columns(), widened_bias_);
    norm_rows(x, weight, {out}, moments, 2, [&](NormRows rows, const float* weights) {
        simd_.layernorm_forward(rows, x.f32(), weights, biases, epsilon, out.f32(), moments.f32());
    });
}

void CpuBackend::layernorm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& moments,
                                 const Tensor& out) {
    const float* const biases = widen_vector(bias, x.columns(), widened_bias_);
    norm_rows(x, weight, {out}, moments, 2, [&](NormRows rows, const float* weights) {
        simd_.layernorm_apply(rows, x.f32(), weights, biases, moments.f32(), out.f32());
    });
}

void CpuBackend::layernorm_backward(const Tensor& x, const Tensor& weight, const Tensor& moments,
                                    const Tensor& out_gradient, const Tensor& residual_gradient,
                                    const Tensor& x_gradient, const Tensor& weight_gradient,
                                    const Tensor& bias_gradient, bool accumulate) {
    check_count(moments, 2 * x.rows());
    norm_rows_backward(x, weight, {out_gradient, x_gradient}, residual_gradient, {weight_gradient, bias_gradient},
                       accumulate, [&](NormRows rows, const float* weights, const float* residual, float* partial) {
                           simd_.layernorm_backward(rows, x.f32(), weights, moments.f32(), out_gradient.f32(), residual,
                                                    x_gradient.f32(), partial, partial + rows.columns);
                       });
}

}  // namespace atl::kernels::cpu
