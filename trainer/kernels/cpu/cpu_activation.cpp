// Biases, activations and dropout of CpuBackend, in the manner of cpu_layers.cpp.

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/kernels/cpu/cpu_backend.h"

namespace atl::kernels::cpu {

void CpuBackend::add_bias(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& out) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_count(out, rows * columns);
    const float* const biases = widen_vector(bias, columns, widened_bias_);
    const float* const rest = residual.empty() ? nullptr : residual.f32();
    for_rows(rows, columns, [&](std::int64_t row) {
        const std::int64_t at = row * columns;
        simd_.add_bias(x.f32() + at, biases, rest == nullptr ? nullptr : rest + at, out.f32() + at, columns);
    });
}

void CpuBackend::bias_relu(const Tensor& x, const Tensor& bias) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    const float* const biases = widen_vector(bias, columns, widened_bias_);
    for_rows(rows, columns, [&](std::int64_t row) { simd_.bias_relu(x.f32() + row * columns, biases, columns); });
}

void CpuBackend::relu_backward(const Tensor& out, const Tensor& gradient) {
    check_count(gradient, out.element_count());
    for_ranges(out.element_count(), kTileElements, [&](auto begin, auto end) {
        simd_.relu_backward(out.f32() + begin, gradient.f32() + begin, end - begin);
    });
}

void CpuBackend::sum_rows(const Tensor& x, const Tensor& out, bool accumulate) {
    constexpr std::int64_t kChannels = 128;  // of a tile
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_count(out, columns);
    if (!accumulate) zero(out);
    for_ranges(columns, kChannels, [&](auto begin, auto end) {
        simd_.sum_rows(x.f32() + begin, rows, columns, end - begin, out.f32() + begin);
    });
}

void CpuBackend::swiglu_forward(const Tensor& gate_up, const Tensor& out) {
    const std::int64_t rows = out.rows(), columns = out.columns();
    check_matrix(gate_up, rows, 2 * columns);
    for_rows(rows, columns, [&](std::int64_t row) {
        simd_.swiglu_forward(gate_up.f32() + 2 * row * columns, out.f32() + row * columns, columns);
    });
}

void CpuBackend::swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                                 const Tensor& out) {
    const std::int64_t rows = out.rows(), columns = out.columns();
    check_matrix(gate_up, rows, 2 * columns);
    check_matrix(gate_up_gradient, rows, 2 * columns);
    check_matrix(out_gradient, rows, columns);
    for_rows(rows, columns, [&](std::int64_t row) {
        simd_.swiglu_backward(gate_up.f32() + 2 * row * columns, out_gradient.f32() + row * columns,
                              gate_up_gradient.f32() + 2 * row * columns, out.f32() + row * columns, columns);
    });
}

void CpuBackend::dropout(const Dropout& dropout, const Tensor& x, const Tensor& out) {
    constexpr std::int64_t kDropped = 1024;  // elements at a time
    check(x.contiguous() && out.contiguous() && out.element_count() == x.element_count(), "dropout: other sizes");
    const auto below = static_cast<std::uint64_t>(std::llround(dropout.probability * 0x1p32));
    const float factor = static_cast<float>(1.0 / (1.0 - dropout.probability));
    for_ranges(x.element_count(), kTileElements, [&](std::int64_t tile_begin, std::int64_t tile_end) {
        std::array<std::uint16_t, kDropped> low, high;  // NOLINT: filled when they are used
        for (std::int64_t begin = tile_begin; begin < tile_end; begin += kDropped) {
            const std::int64_t count = std::min(kDropped, tile_end - begin);
            simd_.random_halves(dropout.seed, static_cast<std::int64_t>(dropout.stream), dropout.first_element + begin,
                                low.data(), high.data(), count);
            for (std::int64_t i = 0; i < count; ++i) {
                const auto at = static_cast<std::size_t>(i);
                const std::uint64_t draw = std::uint64_t{high[at]} << 16 | low[at];
                out.f32()[begin + i] = draw < below ? 0.0F : x.f32()[begin + i] * factor;
            }
        }
    });
}

}  // namespace atl::kernels::cpu
