// RMS norms of the heads of query and key, by the kernels of the norms of rows: the heads of one kind lie in a token
// one after another, so they are the rows of a matrix [heads, D].

#include <algorithm>

#include "trainer/kernels/cpu/cpu_backend.h"
#include "trainer/kernels/cpu/tile.h"

namespace atl::kernels::cpu {

void CpuBackend::norm_heads(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                            const Tensor& key_weight, float epsilon, const Tensor& out, const Tensor& rstd) {
    const std::int64_t rows = shape.batch * shape.length, columns = shape.qkv_columns();
    const std::int64_t channels = shape.head_channels, queries = shape.heads * channels;
    const std::int64_t keys = shape.kv_heads * channels, normed = shape.heads + shape.kv_heads;
    check_matrix(qkv, rows, columns);
    check_matrix(out, rows, columns);
    check_count(rstd, rows * normed);
    const float* const query_weights = widen_vector(query_weight, channels, widened_weight_);
    const float* const key_weights = widen_vector(key_weight, channels, widened_key_weight_);
    for_rows(rows, columns, [&](std::int64_t row) {
        const Tile in = Tile::read(qkv, row * columns, columns), normed_row = Tile::write(out, row * columns, columns);
        const float* const from = in.data();
        float* const to = normed_row.data();
        float* const roots = rstd.f32() + row * normed;
        simd_.rmsnorm_forward({shape.heads, channels}, from, query_weights, epsilon, to, roots);
        simd_.rmsnorm_forward({shape.kv_heads, channels}, from + queries, key_weights, epsilon, to + queries,
                              roots + shape.heads);
        std::copy_n(from + queries + keys, keys, to + queries + keys);
    });
}

// Each tile has its own sums for the weights' gradients; they are added up in the order of the tiles, which are as many
// whatever the number of threads.
void CpuBackend::norm_heads_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                                     const Tensor& key_weight, const Tensor& rstd, const Tensor& gradient,
                                     const Tensor& query_weight_gradient, const Tensor& key_weight_gradient,
                                     bool accumulate) {
    const std::int64_t rows = shape.batch * shape.length, columns = shape.qkv_columns();
    const std::int64_t channels = shape.head_channels, queries = shape.heads * channels;
    const std::int64_t normed = shape.heads + shape.kv_heads;
    check_matrix(qkv, rows, columns);
    check_matrix(gradient, rows, columns);
    check_count(rstd, rows * normed);
    const float* const query_weights = widen_vector(query_weight, channels, widened_weight_);
    const float* const key_weights = widen_vector(key_weight, channels, widened_key_weight_);
    partial_gradients_.assign(static_cast<std::size_t>(kGradientTiles * 2 * channels), 0.0F);
    const std::int64_t tile = std::max<std::int64_t>(1, (rows + kGradientTiles - 1) / kGradientTiles);
    for_ranges(rows, tile, [&](std::int64_t begin, std::int64_t end) {
        float* const partial = partial_gradients_.data() + begin / tile * 2 * channels;
        for (std::int64_t row = begin; row < end; ++row) {
            const Tile in = Tile::read(qkv, row * columns, columns);
            const Tile turned = Tile::update(gradient, row * columns, columns);
            const float* const x = in.data();
            float* const dy = turned.data();
            const float* const roots = rstd.f32() + row * normed;
            simd_.rmsnorm_backward({shape.heads, channels}, x, query_weights, roots, dy, nullptr, dy, partial);
            simd_.rmsnorm_backward({shape.kv_heads, channels}, x + queries, key_weights, roots + shape.heads,
                                   dy + queries, nullptr, dy + queries, partial + channels);
        }
    });
    add_up_tiles({query_weight_gradient, key_weight_gradient}, channels, accumulate);
}

}  // namespace atl::kernels::cpu
