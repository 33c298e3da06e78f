// Biases, activations and dropout of CpuBackend, in the manner of cpu_layers.cpp.

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/kernels/cpu/cpu_backend.h"
#include "trainer/kernels/cpu/tile.h"
#include "trainer/kernels/cpu/widen.h"

namespace atl::kernels::cpu {

void CpuBackend::add_bias(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& out) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_count(out, rows * columns);
    const float* const biases = widen_vector(bias, columns, widened_bias_);
    for_rows(rows, columns, [&](std::int64_t row) {
        const std::int64_t at = row * columns;
        const Tile in = Tile::read(x, at, columns), rest = Tile::read(residual, at, columns);
        const Tile to = Tile::write(out, at, columns);
        simd_.add_bias(in.data(), biases, rest.data(), to.data(), columns);
    });
}

void CpuBackend::bias_relu(const Tensor& x, const Tensor& bias) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    const float* const biases = widen_vector(bias, columns, widened_bias_);
    for_rows(rows, columns, [&](std::int64_t row) {
        simd_.bias_relu(Tile::update(x, row * columns, columns).data(), biases, columns);
    });
}

void CpuBackend::relu_backward(const Tensor& out, const Tensor& gradient) {
    check_count(gradient, out.element_count());
    for_ranges(out.element_count(), kTileElements, [&](auto begin, auto end) {
        const Tile made = Tile::read(out, begin, end - begin), turned = Tile::update(gradient, begin, end - begin);
        simd_.relu_backward(made.data(), turned.data(), end - begin);
    });
}

void CpuBackend::sum_rows(const Tensor& x, const Tensor& out, bool accumulate) {
    constexpr std::int64_t kChannels = 128;  // of a tile
    constexpr std::int64_t kRows = 32;       // that are widened at a time
    using Rows = std::array<float, kRows * kChannels>;
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_count(out, columns);
    if (!accumulate) zero(out);
    for_ranges(columns, kChannels, [&](auto begin, auto end) {
        const Tile sum = Tile::update(out, begin, end - begin);
        if (x.dtype() == tensor::DType::kF32)
            return simd_.sum_rows(x.f32() + begin, rows, columns, end - begin, sum.data());
        Rows run;  // NOLINT: filled when it is used
        for (std::int64_t first = 0; first < rows; first += kRows) {
            const std::int64_t count = std::min(kRows, rows - first), width = end - begin;
            for (std::int64_t row = 0; row < count; ++row)
                widen(x.dtype(), x.data(), (first + row) * columns + begin, width, run.data() + row * width);
            simd_.sum_rows(run.data(), count, width, width, sum.data());
        }
    });
}

void CpuBackend::swiglu_forward(const Tensor& gate_up, const Tensor& out) {
    const std::int64_t rows = out.rows(), columns = out.columns();
    check_matrix(gate_up, rows, 2 * columns);
    for_rows(rows, columns, [&](std::int64_t row) {
        const Tile in = Tile::read(gate_up, 2 * row * columns, 2 * columns);
        simd_.swiglu_forward(in.data(), Tile::write(out, row * columns, columns).data(), columns);
    });
}

void CpuBackend::swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                                 const Tensor& out) {
    const std::int64_t rows = out.rows(), columns = out.columns();
    check_matrix(gate_up, rows, 2 * columns);
    check_matrix(gate_up_gradient, rows, 2 * columns);
    check_matrix(out_gradient, rows, columns);
    for_rows(rows, columns, [&](std::int64_t row) {
        const Tile in = Tile::read(gate_up, 2 * row * columns, 2 * columns);
        const Tile gradient = Tile::read(out_gradient, row * columns, columns);
        const Tile in_gradient = Tile::write(gate_up_gradient, 2 * row * columns, 2 * columns);
        const Tile again = Tile::write(out, row * columns, columns);
        simd_.swiglu_backward(in.data(), gradient.data(), in_gradient.data(), again.data(), columns);
    });
}

void CpuBackend::dropout(const Dropout& dropout, const Tensor& x, const Tensor& out) {
    constexpr std::int64_t kDropped = 1024;  // elements at a time
    check(x.contiguous() && out.contiguous() && out.element_count() == x.element_count(), "dropout: other sizes");
    const auto below = static_cast<std::uint64_t>(std::llround(dropout.probability * 0x1p32));
    const float factor = static_cast<float>(1.0 / (1.0 - dropout.probability));
    for_ranges(x.element_count(), kTileElements, [&](std::int64_t tile_begin, std::int64_t tile_end) {
        const Tile in = Tile::read(x, tile_begin, tile_end - tile_begin);
        const Tile to = Tile::write(out, tile_begin, tile_end - tile_begin);
        std::array<std::uint16_t, kDropped> low, high;  // NOLINT: filled when they are used
        for (std::int64_t begin = tile_begin; begin < tile_end; begin += kDropped) {
            const std::int64_t count = std::min(kDropped, tile_end - begin);
            simd_.random_halves(dropout.seed, static_cast<std::int64_t>(dropout.stream), dropout.first_element + begin,
                                low.data(), high.data(), count);
            for (std::int64_t i = 0; i < count; ++i) {
                const auto at = static_cast<std::size_t>(i);
                const std::uint64_t draw = std::uint64_t{high[at]} << 16 | low[at];
                const std::int64_t of_tile = begin - tile_begin + i;
                to.data()[of_tile] = draw < below ? 0.0F : in.data()[of_tile] * factor;
            }
        }
    });
}

}  // namespace atl::kernels::cpu
