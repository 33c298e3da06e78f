// Embedding, rotary positions and cross entropy of CpuBackend: each function checks the shapes, cuts the work into
// tiles and calls the kernels.

#include <algorithm>

#include "trainer/kernels/cpu/cpu_backend.h"
#include "trainer/kernels/cpu/tile.h"
#include "trainer/kernels/cpu/widen.h"

namespace atl::kernels::cpu {

void CpuBackend::embedding_forward(const Tensor& table, const Tensor& ids, const Tensor& out) {
    const std::int64_t rows = ids.element_count(), columns = table.columns();
    check_matrix(out, rows, columns);
    for_rows(rows, columns, [&](std::int64_t row) {
        const Tile to = Tile::write(out, row * columns, columns);
        widen(table.dtype(), table.data(), ids.i32()[row] * columns, columns, to.data());
    });
}

// A tile is a range of channels, so that a token which occurs twice is added in row order.
void CpuBackend::embedding_backward(const Tensor& ids, const Tensor&, const Tensor& out_gradient,
                                    const Tensor& table_gradient, bool accumulate) {
    constexpr std::int64_t kChannels = 128;
    const std::int64_t rows = ids.element_count(), columns = table_gradient.columns();
    check_matrix(out_gradient, rows, columns);
    if (!accumulate) zero(table_gradient);
    for_ranges(columns, kChannels, [&](auto begin, auto end) {
        for (std::int64_t row = 0; row < rows; ++row) {
            const Tile sum = Tile::update(table_gradient, ids.i32()[row] * columns + begin, end - begin);
            const Tile added = Tile::read(out_gradient, row * columns + begin, end - begin);
            simd_.add(sum.data(), added.data(), sum.data(), end - begin);
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
        const std::int64_t heads = shape.heads + shape.kv_heads;
        const Tile turned = Tile::update(qkv, row * columns, heads * shape.head_channels);
        simd_.rope(turned.data(), table.f32() + positions.i32()[row] * shape.head_channels, heads, shape.head_channels,
                   backward ? -1.0F : 1.0F);
    });
}

// 8 MiB of logits stay in most machines' last cache, and 64 tokens are enough for the products.
std::int64_t CpuBackend::loss_rows(std::int64_t vocabulary) const {
    constexpr std::int64_t kElements = 2 << 20, kRowsMin = 64;
    return std::max(kRowsMin, kElements / vocabulary);
}

void CpuBackend::cross_entropy_forward(const Tensor& logits, const Tensor& targets, const Tensor& losses) {
    const std::int64_t rows = logits.rows(), vocabulary = logits.columns();
    check_count(targets, rows);
    check_count(losses, rows);
    for_rows(rows, vocabulary, [&](std::int64_t row) {
        const std::int32_t target = targets.i32()[row];
        const Tile values = Tile::read(logits, row * vocabulary, vocabulary);
        losses.f32()[row] =
            target == kIgnoredLabel ? 0.0F : simd_.cross_entropy_forward(values.data(), vocabulary, target);
    });
}

void CpuBackend::cross_entropy_backward(const Tensor& logits, const Tensor& targets, float gradient_scale,
                                        const Tensor& loss_scale, const Tensor& losses) {
    const std::int64_t rows = logits.rows(), vocabulary = logits.columns();
    const float scale = gradient_scale * (loss_scale.empty() ? 1.0F : static_cast<float>(*loss_scale.f64()));
    check_count(targets, rows);
    check_count(losses, rows);
    for_rows(rows, vocabulary, [&](std::int64_t row) {
        const Tile tile = Tile::update(logits, row * vocabulary, vocabulary);
        float* const values = tile.data();
        const std::int32_t target = targets.i32()[row];
        if (target == kIgnoredLabel) {
            losses.f32()[row] = 0.0F;
            std::fill(values, values + vocabulary, 0.0F);
        } else {
            losses.f32()[row] = simd_.cross_entropy_backward(values, vocabulary, target, scale);
        }
    });
}

}  // namespace atl::kernels::cpu
