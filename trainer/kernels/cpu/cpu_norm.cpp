// The norms of CpuBackend, in the manner of cpu_layers.cpp.

#include <algorithm>

#include "trainer/kernels/cpu/cpu_backend.h"
#include "trainer/kernels/cpu/tile.h"

namespace atl::kernels::cpu {

// body(first row of a tile, its rows, the weight in fp32). Each of `like_x` has the shape of x; `statistics` are so
// many a row.
template <class Body>
void CpuBackend::norm_rows(const Tensor& x, const Tensor& weight, std::initializer_list<Tensor> like_x,
                           const Tensor& statistics, std::int64_t statistics_per_row, Body&& body) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    for (const Tensor& other : like_x) check_matrix(other, rows, columns);
    check_count(statistics, rows * statistics_per_row);
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    for_ranges(rows, rows_per_tile(columns), [&](auto begin, auto end) { body(begin, end - begin, weights); });
}

// body(first row of a part of a tile, its rows, the weight in fp32, the tile's part of `gradients`, to which it adds).
// A tile of what is kept in another format than fp32 is taken in pieces, as those are widened.
template <class Body>
void CpuBackend::norm_rows_backward(const Tensor& x, const Tensor& weight, std::initializer_list<Tensor> like_x,
                                    std::initializer_list<Tensor> gradients, bool accumulate, Body&& body) {
    const std::int64_t rows = x.rows(), columns = x.columns(), width = std::ssize(gradients) * columns;
    bool is_wide = x.dtype() == tensor::DType::kF32;
    for (const Tensor& other : like_x) {
        if (other.empty()) continue;
        check_matrix(other, rows, columns);
        is_wide = is_wide && other.dtype() == tensor::DType::kF32;
    }
    const float* const weights = widen_vector(weight, columns, widened_weight_);
    partial_gradients_.assign(static_cast<std::size_t>(kGradientTiles * width), 0.0F);
    const std::int64_t tile = std::max<std::int64_t>(1, (rows + kGradientTiles - 1) / kGradientTiles);
    const std::int64_t piece = is_wide ? tile : rows_per_tile(columns);
    for_ranges(rows, tile, [&](auto begin, auto end) {
        for (std::int64_t row = begin; row < end; row += piece)
            body(row, std::min(piece, end - row), weights, partial_gradients_.data() + begin / tile * width);
    });
    add_up_tiles(gradients, columns, accumulate);
}

void CpuBackend::add_up_tiles(std::initializer_list<Tensor> gradients, std::int64_t columns, bool accumulate) {
    const std::int64_t width = std::ssize(gradients) * columns;
    const float* partial = partial_gradients_.data();
    for (const Tensor& gradient : gradients) {
        if (!gradient.empty()) {
            check_count(gradient, columns);
            if (!accumulate) zero(gradient);
            const Tile sum = Tile::update(gradient, 0, columns);
            for (std::int64_t part = 0; part < kGradientTiles; ++part)
                simd_.add(sum.data(), partial + part * width, sum.data(), columns);
        }
        partial += columns;
    }
}

namespace {

Tile read_rows(const Tensor& x, std::int64_t begin, std::int64_t count) {
    return Tile::read(x, begin * x.columns(), count * x.columns());
}

Tile write_rows(const Tensor& x, std::int64_t begin, std::int64_t count) {
    return Tile::write(x, begin * x.columns(), count * x.columns());
}

}  // namespace

void CpuBackend::rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& out,
                                 const Tensor& rstd) {
    norm_rows(x, weight, {out}, rstd, 1, [&](std::int64_t begin, std::int64_t count, const float* weights) {
        const Tile in = read_rows(x, begin, count), to = write_rows(out, begin, count);
        simd_.rmsnorm_forward({count, x.columns()}, in.data(), weights, epsilon, to.data(), rstd.f32() + begin);
    });
}

// A sum that is rounded is what the backward pass will see, so the norm is taken of that.
void CpuBackend::add_rmsnorm_forward(const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                                     const Tensor& sum, const Tensor& out, const Tensor& rstd) {
    if (sum.dtype() != tensor::DType::kF32) {
        add(x, delta, sum);
        return rmsnorm_forward(sum, weight, epsilon, out, rstd);
    }
    norm_rows(x, weight, {delta, sum, out}, rstd, 1, [&](std::int64_t begin, std::int64_t count, const float* weights) {
        const Tile in = read_rows(x, begin, count), added = read_rows(delta, begin, count);
        const Tile total = write_rows(sum, begin, count), to = write_rows(out, begin, count);
        simd_.add_rmsnorm_forward({count, x.columns()}, in.data(), added.data(), weights, epsilon, total.data(),
                                  to.data(), rstd.f32() + begin);
    });
}

void CpuBackend::rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out) {
    norm_rows(x, weight, {out}, rstd, 1, [&](std::int64_t begin, std::int64_t count, const float* weights) {
        const Tile in = read_rows(x, begin, count), to = write_rows(out, begin, count);
        simd_.rmsnorm_apply({count, x.columns()}, in.data(), weights, rstd.f32() + begin, to.data());
    });
}

void CpuBackend::rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                                  const Tensor& residual_gradient, const Tensor& x_gradient,
                                  const Tensor& weight_gradient, bool accumulate) {
    check_count(rstd, x.rows());
    norm_rows_backward(x, weight, {out_gradient, x_gradient, residual_gradient}, {weight_gradient}, accumulate,
                       [&](std::int64_t begin, std::int64_t count, const float* weights, float* partial) {
                           const Tile in = read_rows(x, begin, count), of_out = read_rows(out_gradient, begin, count);
                           const Tile residual = read_rows(residual_gradient, begin, count),
                                      to = write_rows(x_gradient, begin, count);
                           simd_.rmsnorm_backward({count, x.columns()}, in.data(), weights, rstd.f32() + begin,
                                                  of_out.data(), residual.data(), to.data(), partial);
                       });
}

void CpuBackend::layernorm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, float epsilon,
                                   const Tensor& out, const Tensor& moments) {
    const float* const biases = widen_vector(bias, x.columns(), widened_bias_);
    norm_rows(x, weight, {out}, moments, 2, [&](std::int64_t begin, std::int64_t count, const float* weights) {
        const Tile in = read_rows(x, begin, count), to = write_rows(out, begin, count);
        simd_.layernorm_forward({count, x.columns()}, in.data(), weights, biases, epsilon, to.data(),
                                moments.f32() + 2 * begin);
    });
}

void CpuBackend::layernorm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& moments,
                                 const Tensor& out) {
    const float* const biases = widen_vector(bias, x.columns(), widened_bias_);
    norm_rows(x, weight, {out}, moments, 2, [&](std::int64_t begin, std::int64_t count, const float* weights) {
        const Tile in = read_rows(x, begin, count), to = write_rows(out, begin, count);
        simd_.layernorm_apply({count, x.columns()}, in.data(), weights, biases, moments.f32() + 2 * begin, to.data());
    });
}

void CpuBackend::layernorm_backward(const Tensor& x, const Tensor& weight, const Tensor& moments,
                                    const Tensor& out_gradient, const Tensor& residual_gradient,
                                    const Tensor& x_gradient, const Tensor& weight_gradient,
                                    const Tensor& bias_gradient, bool accumulate) {
    check_count(moments, 2 * x.rows());
    norm_rows_backward(
        x, weight, {out_gradient, x_gradient, residual_gradient}, {weight_gradient, bias_gradient}, accumulate,
        [&](std::int64_t begin, std::int64_t count, const float* weights, float* partial) {
            const Tile in = read_rows(x, begin, count), of_out = read_rows(out_gradient, begin, count);
            const Tile residual = read_rows(residual_gradient, begin, count), to = write_rows(x_gradient, begin, count);
            simd_.layernorm_backward({count, x.columns()}, in.data(), weights, moments.f32() + 2 * begin, of_out.data(),
                                     residual.data(), to.data(), partial, partial + x.columns());
        });
}

}  // namespace atl::kernels::cpu
