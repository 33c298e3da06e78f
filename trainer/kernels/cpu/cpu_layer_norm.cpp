// OPT's layers of CpuBackend, in the manner of cpu_layers.cpp.

#include <algorithm>

#include "trainer/kernels/cpu/cpu_backend.h"

namespace atl::kernels::cpu {
namespace {

// Tiles that the gradients of a norm's parameters are cut into, whatever the number of threads.
constexpr std::int64_t kLayerNormTiles = 16;
// Channels of a tile of column sums.
constexpr std::int64_t kSumChannels = 128;

void check_size(const Tensor& x, std::int64_t count) {
    check(x.contiguous() && x.element_count() == count, "a tensor has another size");
}

}  // namespace

void CpuBackend::layernorm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, float epsilon,
                                   const Tensor& out, const Tensor& moments) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_size(out, rows * columns);
    check_size(moments, 2 * rows);
    const float* const weights = norm_weight(weight, columns);
    const float* const biases = bias_of(bias, columns);
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        loops_.layernorm_forward({begin, end, columns}, x.f32(), weights, biases, epsilon, out.f32(), moments.f32());
    });
}

void CpuBackend::layernorm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& moments,
                                 const Tensor& out) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_size(out, rows * columns);
    check_size(moments, 2 * rows);
    const float* const weights = norm_weight(weight, columns);
    const float* const biases = bias_of(bias, columns);
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        loops_.layernorm_apply({begin, end, columns}, x.f32(), weights, biases, moments.f32(), out.f32());
    });
}

void CpuBackend::layernorm_backward(const Tensor& x, const Tensor& weight, const Tensor& moments,
                                    const Tensor& out_gradient, const Tensor& residual_gradient,
                                    const Tensor& x_gradient, const Tensor& weight_gradient,
                                    const Tensor& bias_gradient, bool accumulate) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_size(out_gradient, rows * columns);
    check_size(x_gradient, rows * columns);
    check_size(moments, 2 * rows);
    if (!weight_gradient.empty()) check_size(weight_gradient, columns);
    if (!bias_gradient.empty()) check_size(bias_gradient, columns);
    const float* const weights = norm_weight(weight, columns);
    const float* const residual = residual_gradient.empty() ? nullptr : residual_gradient.f32();
    partial_gradients_.assign(static_cast<std::size_t>(2 * kLayerNormTiles * columns), 0.0F);
    const std::int64_t tile = std::max<std::int64_t>(1, (rows + kLayerNormTiles - 1) / kLayerNormTiles);
    for_ranges(rows, tile, [&](auto begin, auto end) {
        float* const partial = partial_gradients_.data() + begin / tile * 2 * columns;
        loops_.layernorm_backward({begin, end, columns}, x.f32(), weights, moments.f32(), out_gradient.f32(), residual,
                                  x_gradient.f32(), partial, partial + columns);
    });
    const auto add_up = [&](const Tensor& gradient, std::int64_t offset) {
        if (gradient.empty()) return;
        if (!accumulate) zero(gradient);
        for (std::int64_t part = 0; part < kLayerNormTiles; ++part) {
            const float* const partial = partial_gradients_.data() + part * 2 * columns + offset;
            loops_.add(gradient.f32(), partial, gradient.f32(), columns);
        }
    };
    add_up(weight_gradient, 0);
    add_up(bias_gradient, columns);
}

void CpuBackend::add_bias(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& out) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_size(out, rows * columns);
    const float* const biases = bias_of(bias, columns);
    const float* const rest = residual.empty() ? nullptr : residual.f32();
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        for (std::int64_t at = begin * columns; at < end * columns; at += columns) {
            loops_.add_bias(x.f32() + at, biases, rest == nullptr ? nullptr : rest + at, out.f32() + at, columns);
        }
    });
}

void CpuBackend::bias_relu(const Tensor& x, const Tensor& bias) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    const float* const biases = bias_of(bias, columns);
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        for (std::int64_t row = begin; row < end; ++row) loops_.bias_relu(x.f32() + row * columns, biases, columns);
    });
}

void CpuBackend::relu_backward(const Tensor& out, const Tensor& gradient) {
    check_size(gradient, out.element_count());
    for_ranges(out.element_count(), kTileElements, [&](auto begin, auto end) {
        loops_.relu_backward(out.f32() + begin, gradient.f32() + begin, end - begin);
    });
}

void CpuBackend::sum_rows(const Tensor& x, const Tensor& out, bool accumulate) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_size(out, columns);
    if (!accumulate) zero(out);
    for_ranges(columns, kSumChannels, [&](auto begin, auto end) {
        loops_.sum_rows(x.f32() + begin, rows, columns, end - begin, out.f32() + begin);
    });
}

}  // namespace atl::kernels::cpu
