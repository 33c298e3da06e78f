// The layers of CpuBackend: each function checks the shapes, cuts the work into tiles and calls the loops.

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/kernels/cpu/cpu_backend.h"

namespace atl::kernels::cpu {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

// Tiles that a sum over rows is cut into, whatever the number of threads.
constexpr std::int64_t kNormTiles = 16;

void check_matrix(const Tensor& x, std::int64_t rows, std::int64_t columns) {
    check(x.contiguous() && x.rows() == rows && x.columns() == columns, "a matrix has another shape");
}

void check_count(const Tensor& x, std::int64_t count) {
    check(x.contiguous() && x.element_count() == count, "a tensor has another size");
}

}  // namespace

void CpuBackend::embedding_forward(const Tensor& table, const Tensor& ids, const Tensor& out) {
    const std::int64_t rows = ids.element_count(), columns = table.columns();
    check_matrix(out, rows, columns);
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        for (std::int64_t row = begin; row < end; ++row) {
            widen(loops_, table.dtype(), table.data(), ids.i32()[row] * columns, columns, out.f32() + row * columns);
        }
    });
}

// A tile is a range of channels, so that a token which occurs twice is added in row order.
void CpuBackend::embedding_backward(const Tensor& ids, const Tensor& out_gradient, const Tensor& table_gradient,
                                    bool accumulate) {
    constexpr std::int64_t kChannels = 128;
    const std::int64_t rows = ids.element_count(), columns = table_gradient.columns();
    check_matrix(out_gradient, rows, columns);
    if (!accumulate) zero(table_gradient);
    for_ranges(columns, kChannels, [&](auto begin, auto end) {
        for (std::int64_t row = 0; row < rows; ++row) {
            float* const sum = table_gradient.f32() + ids.i32()[row] * columns + begin;
            loops_.add(sum, out_gradient.f32() + row * columns + begin, sum, end - begin);
        }
    });
}

const float* CpuBackend::as_f32(const Tensor& vector, std::int64_t channels, std::vector<float>& widened) {
    check_count(vector, channels);
    if (vector.dtype() == DType::kF32) return vector.f32();
    widened.resize(static_cast<std::size_t>(channels));
    widen(loops_, vector.dtype(), vector.data(), 0, channels, widened.data());
    return widened.data();
}

const float* CpuBackend::norm_weight(const Tensor& weight, std::int64_t channels) {
    return as_f32(weight, channels, widened_weight_);
}

const float* CpuBackend::bias_of(const Tensor& bias, std::int64_t channels) {
    return as_f32(bias, channels, widened_bias_);
}

void CpuBackend::rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& out,
                                 const Tensor& rstd) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_matrix(out, rows, columns);
    const float* const weights = norm_weight(weight, columns);
    check_count(rstd, rows);
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        loops_.rmsnorm_forward({begin, end, columns}, x.f32(), weights, epsilon, out.f32(), rstd.f32());
    });
}

void CpuBackend::add_rmsnorm_forward(const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                                     const Tensor& sum, const Tensor& out, const Tensor& rstd) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_matrix(delta, rows, columns);
    check_matrix(sum, rows, columns);
    check_matrix(out, rows, columns);
    const float* const weights = norm_weight(weight, columns);
    check_count(rstd, rows);
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        loops_.add_rmsnorm_forward({begin, end, columns}, x.f32(), delta.f32(), weights, epsilon, sum.f32(), out.f32(),
                                   rstd.f32());
    });
}

void CpuBackend::rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_matrix(out, rows, columns);
    const float* const weights = norm_weight(weight, columns);
    check_count(rstd, rows);
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        loops_.rmsnorm_apply({begin, end, columns}, x.f32(), weights, rstd.f32(), out.f32());
    });
}

void CpuBackend::rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                                  const Tensor& residual_gradient, const Tensor& x_gradient,
                                  const Tensor& weight_gradient, bool accumulate) {
    const std::int64_t rows = x.rows(), columns = x.columns();
    check_matrix(out_gradient, rows, columns);
    check_matrix(x_gradient, rows, columns);
    const float* const weights = norm_weight(weight, columns);
    check_count(rstd, rows);
    check(weight_gradient.empty() || weight_gradient.element_count() == columns, "a tensor has another size");
    const float* const residual = residual_gradient.empty() ? nullptr : residual_gradient.f32();
    partial_gradients_.assign(static_cast<std::size_t>(kNormTiles * columns), 0.0F);
    const std::int64_t tile = std::max<std::int64_t>(1, (rows + kNormTiles - 1) / kNormTiles);
    for_ranges(rows, tile, [&](auto begin, auto end) {
        loops_.rmsnorm_backward({begin, end, columns}, x.f32(), weights, rstd.f32(), out_gradient.f32(), residual,
                                x_gradient.f32(), partial_gradients_.data() + begin / tile * columns);
    });
    if (weight_gradient.empty()) return;
    if (!accumulate) zero(weight_gradient);
    for (std::int64_t part = 0; part < kNormTiles; ++part) {
        loops_.add(weight_gradient.f32(), partial_gradients_.data() + part * columns, weight_gradient.f32(), columns);
    }
}

void CpuBackend::rope(const AttentionShape& shape, const Tensor& table, const Tensor& positions, const Tensor& qkv,
                      float direction) {
    const std::int64_t rows = shape.batch * shape.length, columns = shape.qkv_columns();
    check_matrix(qkv, rows, columns);
    check_count(positions, rows);
    check(table.columns() == shape.head_channels, "the rope table is of another head size");
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        for (std::int64_t row = begin; row < end; ++row) {
            loops_.rope(qkv.f32() + row * columns, table.f32() + positions.i32()[row] * shape.head_channels,
                        shape.heads + shape.kv_heads, shape.head_channels, direction);
        }
    });
}

void CpuBackend::rope_forward(const AttentionShape& shape, const Tensor& table, const Tensor& positions,
                              const Tensor& qkv) {
    rope(shape, table, positions, qkv, 1.0F);
}

void CpuBackend::rope_backward(const AttentionShape& shape, const Tensor& table, const Tensor& positions,
                               const Tensor& qkv_gradient) {
    rope(shape, table, positions, qkv_gradient, -1.0F);
}

void CpuBackend::swiglu_forward(const Tensor& gate_up, const Tensor& out) {
    const std::int64_t rows = out.rows(), columns = out.columns();
    check_matrix(gate_up, rows, 2 * columns);
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        for (std::int64_t row = begin; row < end; ++row) {
            loops_.swiglu_forward(gate_up.f32() + 2 * row * columns, out.f32() + row * columns, columns);
        }
    });
}

void CpuBackend::swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                                 const Tensor& out) {
    const std::int64_t rows = out.rows(), columns = out.columns();
    check_matrix(gate_up, rows, 2 * columns);
    check_matrix(gate_up_gradient, rows, 2 * columns);
    check_matrix(out_gradient, rows, columns);
    for_ranges(rows, rows_of_tile(columns), [&](auto begin, auto end) {
        for (std::int64_t row = begin; row < end; ++row) {
            loops_.swiglu_backward(gate_up.f32() + 2 * row * columns, out_gradient.f32() + row * columns,
                                   gate_up_gradient.f32() + 2 * row * columns, out.f32() + row * columns, columns);
        }
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
            loops_.random_halves(dropout.seed, static_cast<std::int64_t>(dropout.stream), dropout.first_element + begin,
                                 low.data(), high.data(), count);
            for (std::int64_t i = 0; i < count; ++i) {
                const auto at = static_cast<std::size_t>(i);
                const std::uint64_t draw = std::uint64_t{high[at]} << 16 | low[at];
                out.f32()[begin + i] = draw < below ? 0.0F : x.f32()[begin + i] * factor;
            }
        }
    });
}

void CpuBackend::cross_entropy_forward(const Tensor& logits, const Tensor& targets, const Tensor& losses) {
    const std::int64_t rows = logits.rows(), vocabulary = logits.columns();
    check_count(targets, rows);
    check_count(losses, rows);
    for_ranges(rows, rows_of_tile(vocabulary), [&](auto begin, auto end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const std::int32_t target = targets.i32()[row];
            losses.f32()[row] = target == kIgnoredLabel
                                    ? 0.0F
                                    : loops_.cross_entropy_forward(logits.f32() + row * vocabulary, vocabulary, target);
        }
    });
}

void CpuBackend::cross_entropy_backward(const Tensor& logits, const Tensor& targets, float gradient_scale,
                                        const Tensor& losses) {
    const std::int64_t rows = logits.rows(), vocabulary = logits.columns();
    check_count(targets, rows);
    check_count(losses, rows);
    for_ranges(rows, rows_of_tile(vocabulary), [&](auto begin, auto end) {
        for (std::int64_t row = begin; row < end; ++row) {
            float* const values = logits.f32() + row * vocabulary;
            const std::int32_t target = targets.i32()[row];
            if (target == kIgnoredLabel) {
                losses.f32()[row] = 0.0F;
                std::fill(values, values + vocabulary, 0.0F);
            } else {
                losses.f32()[row] = loops_.cross_entropy_backward(values, vocabulary, target, gradient_scale);
            }
        }
    });
}

}  // namespace atl::kernels::cpu
