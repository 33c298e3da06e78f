// Embedding, rotary positions and cross entropy of CpuBackend: each function checks the shapes, cuts the work into
// tiles and calls the kernels.

#include <algorithm>

#include "trainer/kernels/cpu/cpu_backend.h"
#include "trainer/kernels/cpu/widen.h"

namespace atl::kernels::cpu {

void CpuBackend::embedding_forward(const Tensor& table, const Tensor& ids, const Tensor& out) {
    const std::int64_t rows = ids.element_count(), columns = table.columns();
    check_matrix(out, rows, columns);
    for_rows(rows, columns, [&](std::int64_t row) {
        widen(table.dtype(), table.data(), ids.i32()[row] * columns, columns, out.f32() + row * columns);
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
            simd_.add(sum, out_gradient.f32() + row * columns + begin, sum, end - begin);
        }
    });
}

void CpuBackend::rope(const AttentionShape& shape, const Tensor& table, const Tensor& positions, const Tensor& qkv,
                      bool backward) {
    const std::int64_t rows = shape.batch * shape.length, columns = shape.qkv_columns();
    check_matrix(qkv, rows, columns);
    check_count(positions, rows);
    check(table.columns() == shape.head_channels, "the rope table is of another head size");
    for_rows(rows, columns, [&](std::int64_t row) {
        simd_.rope(qkv.f32() + row * columns, table.f32() + positions.i32()[row] * shape.head_channels,
                   shape.heads + shape.kv_heads, shape.head_channels, backward ? -1.0F : 1.0F);
    });
}

void CpuBackend::cross_entropy_forward(const Tensor& logits, const Tensor& targets, const Tensor& losses) {
    const std::int64_t rows = logits.rows(), vocabulary = logits.columns();
    check_count(targets, rows);
    check_count(losses, rows);
    for_rows(rows, vocabulary, [&](std::int64_t row) {
        const std::int32_t target = targets.i32()[row];
        losses.f32()[row] = target == kIgnoredLabel
                                ? 0.0F
                                : simd_.cross_entropy_forward(logits.f32() + row * vocabulary, vocabulary, target);
    });
}

void CpuBackend::cross_entropy_backward(const Tensor& logits, const Tensor& targets, float gradient_scale,
                                        const Tensor& losses) {
    const std::int64_t rows = logits.rows(), vocabulary = logits.columns();
    check_count(targets, rows);
    check_count(losses, rows);
    for_rows(rows, vocabulary, [&](std::int64_t row) {
        float* const values = logits.f32() + row * vocabulary;
        const std::int32_t target = targets.i32()[row];
        if (target == kIgnoredLabel) {
            losses.f32()[row] = 0.0F;
            std::fill(values, values + vocabulary, 0.0F);
        } else {
            losses.f32()[row] = simd_.cross_entropy_backward(values, vocabulary, target, gradient_scale);
        }
    });
}

}  // namespace atl::kernels::cpu
