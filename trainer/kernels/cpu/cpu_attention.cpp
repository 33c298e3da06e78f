// Attention of CpuBackend: tiles of attention_tiles.h, each a task for the kernels.

#include <algorithm>
#include <cstring>

#include "trainer/kernels/cpu/attention_tiles.h"
#include "trainer/kernels/cpu/cpu_backend.h"
#include "trainer/kernels/cpu/widen.h"
#include "trainer/kernels/formats.h"

namespace atl::kernels::cpu {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

void check_shape(const AttentionShape& shape, const Tensor& qkv, const Tensor& out) {
    const std::int64_t rows = shape.batch * shape.length;
    check(shape.heads % shape.kv_heads == 0, "query heads are a multiple of key/value heads");
    check(qkv.contiguous() && qkv.rows() == rows && qkv.columns() == shape.qkv_columns(), "qkv has another shape");
    check(qkv.dtype() == shape.format, "qkv has another format");
    check(out.contiguous() && out.element_count() == rows * shape.heads * shape.head_channels,
          "attention's out has another shape");
}

template <DType kFormat>
constexpr RowFormat kRowFormat = {
    .element_bytes = 2,
    .widen = [](const void* from, std::int64_t count, float* to) { widen(kFormat, from, 0, count, to); },
    .narrow = [](const float* from, std::int64_t count, void* to) { narrow(from, kFormat, to, 0, count); },
};

const RowFormat* row_format(DType format) {
    if (format == DType::kF32) return nullptr;
    check(format == DType::kF16 || format == DType::kBF16, "attention knows no such format");
    return format == DType::kF16 ? &kRowFormat<DType::kF16> : &kRowFormat<DType::kBF16>;
}

AttentionRows rows_at(const Tensor& matrix, std::int64_t row, std::int64_t column) {
    return {matrix.at(row * matrix.columns() + column), matrix.columns()};
}

// Where a tile's rows are in matrices of the whole batch.
struct TileRows {
    const AttentionShape& shape;
    const AttentionTile& tile;

    // In a matrix [B·T, H·D …].
    AttentionRows of_queries(const Tensor& matrix) const {
        return rows_at(matrix, tile.sequence * shape.length + tile.first_query, tile.first_head * shape.head_channels);
    }
    AttentionRows of_out(const Tensor& out) const {
        return of_queries(out.reshape({shape.batch * shape.length, shape.heads * shape.head_channels}));
    }
    // In qkv or its gradient.
    AttentionRows of_keys(const Tensor& qkv) const { return of_kv_head(qkv, shape.heads); }
    AttentionRows of_values(const Tensor& qkv) const { return of_kv_head(qkv, shape.heads + shape.kv_heads); }
    // In a cache [B·T_max, K·D].
    AttentionRows of_cache(const Tensor& cache) const { return of_kv_head(cache, 0); }

  private:
    AttentionRows of_kv_head(const Tensor& matrix, std::int64_t heads_before) const {
        return rows_at(matrix, tile.sequence * (matrix.rows() / shape.batch) + tile.first_key,
                       (heads_before + tile.kv_head) * shape.head_channels);
    }
};

// Of a tensor [B, H, T]; null of an empty one.
float* statistics_at(const AttentionShape& shape, const AttentionTile& tile, const Tensor& statistics) {
    if (statistics.empty()) return nullptr;
    return statistics.f32() + (tile.sequence * shape.heads + tile.first_head) * shape.length + tile.first_query;
}

// Of a tensor [B, T]; null of an empty one.
const std::int32_t* segments_at(const AttentionShape& shape, const AttentionTile& tile, const Tensor& starts) {
    if (starts.empty()) return nullptr;
    return starts.i32() + tile.sequence * shape.length + tile.first_query;
}

auto kernel_of(const SimdKernels& simd, AttentionPass pass) {
    switch (pass) {
        case AttentionPass::kForward:
            return simd.attention_forward;
        case AttentionPass::kStepScores:
            return simd.attention_step_scores;
        case AttentionPass::kStepValues:
            return simd.attention_step_values;
        default:
            return simd.attention_backward;
    }
}

std::int64_t scores_stride(std::int64_t keys) {
    return (keys + kAttentionPanel - 1) / kAttentionPanel * kAttentionPanel;
}

// What is kept: the logarithms of the sums of exponentials.
Tensor log_sums_in(const AttentionShape& shape, const Tensor& kept) {
    Tensor sums(kept.data(), kStatistics, {shape.batch, shape.heads, shape.length});
    check(kept.byte_count() == sums.byte_count(), "what attention keeps has another size");
    return sums;
}

}  // namespace

std::int64_t CpuBackend::attention_scratch_bytes(AttentionPass pass, std::int64_t keys, std::int64_t channels) const {
    return tensor::aligned(simd_.attention_scratch_floats(pass, keys, channels) *
                           static_cast<std::int64_t>(sizeof(float)));
}

// fill(tile, its task) names the matrices.
template <class Fill>
void CpuBackend::run_attention(AttentionPass pass, const AttentionShape& shape, const AttentionTiles& tiles,
                               std::int64_t past, Arena& workspace, Fill&& fill) {
    const Arena::Scope scope(workspace);
    const std::int64_t bytes = attention_scratch_bytes(pass, tiles.keys_max(), shape.head_channels);
    std::byte* const scratch = workspace.allocate_bytes(Category::kWorkspace, pool_.threads() * bytes);
    const auto kernel = kernel_of(simd_, pass);
    pool_.parallel_for(tiles.count(), [&](std::int64_t index, int thread) {
        const AttentionTile tile = tiles.at(index);
        AttentionTask task{};
        task.pass = pass;
        task.format = row_format(shape.format);
        task.first_query = past + tile.first_query;
        task.query_count = tile.query_count;
        task.first_key = tile.first_key;
        task.key_count = tile.key_count;
        task.group = tile.group;
        task.head_channels = shape.head_channels;
        task.scratch = reinterpret_cast<float*>(scratch + thread * bytes);
        fill(tile, task);
        kernel(task);
    });
}

std::int64_t CpuBackend::attention_kept_bytes(const AttentionShape& shape) const {
    return tensor::size_bytes(kStatistics, shape.batch * shape.heads * shape.length);
}

std::int64_t CpuBackend::attention_workspace_bytes(const AttentionShape& shape) const {
    const auto bytes = [&](AttentionPass pass, const AttentionTiles& tiles) {
        return pool_.threads() * attention_scratch_bytes(pass, tiles.keys_max(), shape.head_channels);
    };
    const AttentionTiles groups = AttentionTiles::of_groups(shape, shape.length);
    const std::int64_t forward = bytes(AttentionPass::kForward, groups);
    if (!splits_attention_backward(shape, pool_.threads()))
        return std::max(forward, bytes(AttentionPass::kBackward, groups));
    const AttentionTiles of_queries = AttentionTiles::of_queries(shape, shape.length);
    const AttentionTiles of_keys = AttentionTiles::of_keys(shape, shape.length);
    const std::int64_t deltas = tensor::size_bytes(kStatistics, shape.batch * shape.heads * shape.length);
    return std::max(forward, tensor::aligned(deltas) + std::max(bytes(AttentionPass::kQueryGradients, of_queries),
                                                                bytes(AttentionPass::kKeyGradients, of_keys)));
}

void CpuBackend::attention_forward(const AttentionShape& shape, const Tensor& qkv, const Documents& documents,
                                   const Tensor& out, const Tensor& kept, Arena& workspace) {
    check_shape(shape, qkv, out);
    const Tensor log_sum_exp = log_sums_in(shape, kept);
    const AttentionTiles tiles = attention_forward_tiles(shape, shape.length, pool_.threads());
    run_attention(AttentionPass::kForward, shape, tiles, 0, workspace, [&](const AttentionTile& tile, auto& task) {
        const TileRows rows{shape, tile};
        task.queries = rows.of_queries(qkv);
        task.keys = rows.of_keys(qkv);
        task.values = rows.of_values(qkv);
        task.out = rows.of_out(out);
        task.log_sum_exp = statistics_at(shape, tile, log_sum_exp);
        task.segment_starts = segments_at(shape, tile, documents.segment_starts);
    });
}

void CpuBackend::attention_backward(const AttentionShape& shape, const Tensor& qkv, const Documents& documents,
                                    const Tensor& out, const Tensor& kept, const Tensor& out_gradient,
                                    const Rotation& rotation, const Tensor& qkv_gradient, Arena& workspace) {
    check_shape(shape, qkv, out);
    check_shape(shape, qkv_gradient, out_gradient);
    compute_attention_gradients(shape, qkv, documents.segment_starts, log_sums_in(shape, kept), out_gradient,
                                qkv_gradient, workspace);
    if (!rotation.table.empty()) rope(shape, rotation.table, rotation.positions, qkv_gradient, true);
}

void CpuBackend::compute_attention_gradients(const AttentionShape& shape, const Tensor& qkv,
                                             const Tensor& segment_starts, const Tensor& log_sum_exp,
                                             const Tensor& out_gradient, const Tensor& qkv_gradient, Arena& workspace) {
    Tensor deltas;
    const auto run = [&](AttentionPass pass, const AttentionTiles& tiles) {
        run_attention(pass, shape, tiles, 0, workspace, [&](const AttentionTile& tile, auto& task) {
            const TileRows rows{shape, tile};
            task.queries = rows.of_queries(qkv);
            task.keys = rows.of_keys(qkv);
            task.values = rows.of_values(qkv);
            task.log_sum_exp = statistics_at(shape, tile, log_sum_exp);
            task.deltas = statistics_at(shape, tile, deltas);
            task.segment_starts = segments_at(shape, tile, segment_starts);
            task.out_gradient = rows.of_out(out_gradient);
            task.query_gradient = rows.of_queries(qkv_gradient);
            task.key_gradient = rows.of_keys(qkv_gradient);
            task.value_gradient = rows.of_values(qkv_gradient);
        });
    };
    if (!splits_attention_backward(shape, pool_.threads()))
        return run(AttentionPass::kBackward, AttentionTiles::of_groups(shape, shape.length));
    const Arena::Scope scope(workspace);
    deltas = workspace.allocate(Category::kWorkspace, kStatistics, {shape.batch, shape.heads, shape.length});
    run(AttentionPass::kQueryGradients, AttentionTiles::of_queries(shape, shape.length));
    run(AttentionPass::kKeyGradients, AttentionTiles::of_keys(shape, shape.length));
}

// For steps of one token too, as a prompt is followed by these.
std::int64_t CpuBackend::attention_cached_workspace_bytes(const AttentionShape& shape, std::int64_t keys_max) const {
    const auto bytes = [&](AttentionPass pass) {
        return pool_.threads() * attention_scratch_bytes(pass, keys_max, shape.head_channels);
    };
    const std::int64_t scores = tensor::size_bytes(kStatistics, shape.batch * shape.heads * scores_stride(keys_max));
    const std::int64_t step =
        tensor::aligned(scores) + std::max(bytes(AttentionPass::kStepScores), bytes(AttentionPass::kStepValues));
    return shape.length == 1 ? step : std::max(step, bytes(AttentionPass::kForward));
}

void CpuBackend::attention_cached(const AttentionShape& shape, const Tensor& qkv, std::int64_t past,
                                  const Tensor& key_cache, const Tensor& value_cache, const Tensor& out,
                                  Arena& workspace) {
    check_shape(shape, qkv, out);
    const std::int64_t channels = shape.head_channels, width = shape.kv_heads * channels;
    const std::int64_t keys_max = key_cache.rows() / shape.batch, key_count = past + shape.length;
    check(key_count <= keys_max && key_cache.columns() == width && value_cache.columns() == width,
          "the key/value cache is too small");
    check(key_cache.dtype() == qkv.dtype() && value_cache.dtype() == qkv.dtype(), "the cache has another format");
    for (std::int64_t row = 0; row < shape.batch * shape.length; ++row) {
        const std::int64_t at = row / shape.length * keys_max + past + row % shape.length;
        const Tensor from = qkv.row_range(row, 1);
        const auto size = static_cast<std::size_t>(tensor::size_bytes(qkv.dtype(), width));
        std::memcpy(key_cache.row_range(at, 1).data(), from.at(shape.heads * channels), size);
        std::memcpy(value_cache.row_range(at, 1).data(), from.at(shape.heads * channels + width), size);
    }
    const auto fill = [&](const AttentionTile& tile, AttentionTask& task) {
        const TileRows rows{shape, tile};
        task.queries = rows.of_queries(qkv);
        task.keys = rows.of_cache(key_cache);
        task.values = rows.of_cache(value_cache);
        task.out = rows.of_out(out);
    };
    if (shape.length > 1)
        return run_attention(AttentionPass::kForward, shape, attention_forward_tiles(shape, key_count, pool_.threads()),
                             past, workspace, fill);
    const Arena::Scope scope(workspace);
    const std::int64_t stride = scores_stride(key_count);
    const Tensor scores = workspace.allocate(Category::kWorkspace, kStatistics, {shape.batch * shape.heads, stride});
    const auto run = [&](AttentionPass pass, const AttentionTiles& tiles) {
        run_attention(pass, shape, tiles, past, workspace, [&](const AttentionTile& tile, auto& task) {
            fill(tile, task);
            task.scores = scores.f32() + (tile.sequence * shape.heads + tile.first_head) * stride + tile.first_key;
            task.scores_stride = stride;
        });
    };
    run(AttentionPass::kStepScores, AttentionTiles::of_keys(shape, key_count));
    run(AttentionPass::kStepValues, attention_step_tiles(shape, key_count, pool_.threads()));
}

}  // namespace atl::kernels::cpu
