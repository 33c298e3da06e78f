// Attention of CpuBackend: a tile is one key/value head of one sequence, with all query heads that share it, or in the
// forward pass with some queries of some of these.

#include <algorithm>
#include <cstring>

#include "trainer/kernels/cpu/cpu_backend.h"
#include "trainer/kernels/cpu/widen.h"

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

// One key/value head of one sequence with query heads that share it: where they are in a row. Without more, all of them
// with all their queries.
struct Heads {
    Heads(const AttentionShape& shape, std::int64_t index)
        : sequence(index / shape.kv_heads),
          kv_head(index % shape.kv_heads),
          channels(shape.head_channels),
          group(shape.heads / shape.kv_heads),
          query_count(shape.length),
          first_row(sequence * shape.length),
          first_head(kv_head * group),
          queries(first_head * channels),
          keys((shape.heads + kv_head) * channels),
          values((shape.heads + shape.kv_heads + kv_head) * channels) {}

    std::int64_t sequence, kv_head, channels;
    std::int64_t group;                     // query heads
    std::int64_t query_count;               // of each of them
    std::int64_t first_row, first_query{};  // of the sequence; in the sequence
    std::int64_t first_head;                // of the query heads
    std::int64_t queries, keys, values;     // columns of qkv; those of the queries are the result's too
};

// How the forward pass is cut: where there are groups of heads enough for the threads, into these, whose keys are then
// packed once; else short sequences into some heads of a group, long ones into blocks of queries of one head. A query's
// sums are over its own keys in their order, so that a cut changes no bit.
class ForwardTiles {
  public:
    ForwardTiles(const AttentionShape& shape, int threads)
        : shape_(shape), queries_(shape.length), heads_(shape.heads / shape.kv_heads) {
        if (shape.batch * shape.kv_heads >= kGroupsPerThread * threads) return;
        queries_ = std::min(shape.length, kQueries);
        heads_ = std::clamp<std::int64_t>(kQueries / queries_, 1, heads_);
        blocks_ = divide_up(shape.length, queries_);
        parts_ = divide_up(shape.heads / shape.kv_heads, heads_);
    }

    std::int64_t count() const { return blocks_ * of_block(); }
    // The last queries, which see the most keys, come first: so the threads end at about the same time.
    Heads at(std::int64_t index) const {
        Heads tile(shape_, index % of_block() / parts_);
        const std::int64_t skipped = index % parts_ * heads_;
        tile.first_head += skipped;
        tile.queries += skipped * tile.channels;
        tile.group = std::min(heads_, tile.group - skipped);
        tile.first_query = (blocks_ - 1 - index / of_block()) * queries_;
        tile.query_count = std::min(queries_, shape_.length - tile.first_query);
        return tile;
    }

  private:
    // So many keep threads from waiting long for the last one.
    static constexpr std::int64_t kGroupsPerThread = 4;
    // Of a tile, over all its heads: enough to pay for packing the keys. A multiple of the kernels' blocks of queries
    // and panels of keys, so that these are the same wherever a sequence is cut.
    static constexpr std::int64_t kQueries = 512;
    static std::int64_t divide_up(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }
    std::int64_t of_block() const { return shape_.batch * shape_.kv_heads * parts_; }

    AttentionShape shape_;
    std::int64_t queries_;     // of each head of a tile
    std::int64_t heads_;       // of a tile
    std::int64_t blocks_ = 1;  // of queries, of a sequence
    std::int64_t parts_ = 1;   // of a group of heads
};

// Some rows of some columns of a matrix in fp32, as attention reads and writes them: where they lie, or, of a matrix in
// another format, a copy at `scratch`, which moves past it.
class Columns {
  public:
    Columns(const Tensor& matrix, std::int64_t first_row, std::int64_t rows, std::int64_t column, std::int64_t width,
            float*& scratch)
        : matrix_(matrix), at_(first_row * matrix.columns() + column), rows_(rows), width_(width) {
        is_copy_ = matrix.dtype() != DType::kF32;
        data_ = is_copy_ ? scratch : matrix.f32() + at_;
        if (is_copy_) scratch += rows * width;
    }
    float* data() const { return data_; }
    std::int64_t stride() const { return is_copy_ ? width_ : matrix_.columns(); }
    float* load() const {
        for (std::int64_t row = 0; is_copy_ && row < rows_; ++row)
            widen(matrix_.dtype(), matrix_.data(), at_ + row * matrix_.columns(), width_, data_ + row * width_);
        return data_;
    }
    void store() const {
        for (std::int64_t row = 0; is_copy_ && row < rows_; ++row)
            narrow(data_ + row * width_, matrix_.dtype(), matrix_.data(), at_ + row * matrix_.columns(), width_);
    }

  private:
    Tensor matrix_;
    std::int64_t at_, rows_, width_;
    bool is_copy_ = false;
    float* data_ = nullptr;
};

// Floats that the copies of a tile take at most.
std::int64_t copied_floats(const AttentionShape& shape, std::int64_t keys, bool backward) {
    if (shape.format == DType::kF32) return 0;
    const std::int64_t group = shape.heads / shape.kv_heads;
    const std::int64_t rows = backward ? 3 * group * shape.length + 4 * keys : 2 * group * shape.length + 2 * keys;
    return rows * shape.head_channels;
}

AttentionTask make_task(const AttentionShape& shape, const Heads& heads, const Tensor& segment_starts,
                        const Tensor& log_sum_exp, float* scratch) {
    AttentionTask task{};
    task.query_count = heads.query_count;
    task.key_count = heads.first_query + heads.query_count;
    task.group = heads.group;
    task.head_channels = heads.channels;
    task.scratch = scratch;
    if (!segment_starts.empty()) task.segment_starts = segment_starts.i32() + heads.first_row + heads.first_query;
    if (!log_sum_exp.empty())
        task.log_sum_exp =
            log_sum_exp.f32() + (heads.sequence * shape.heads + heads.first_head) * shape.length + heads.first_query;
    return task;
}

void set_operands(AttentionTask& task, const Columns& queries, const Columns& keys, const Columns& values,
                  const Columns& out) {
    task.queries = queries.load();
    task.keys = keys.load();
    task.values = values.load();
    task.out = out.data();
    task.query_stride = queries.stride();
    task.kv_stride = keys.stride();
    task.out_stride = out.stride();
}

}  // namespace

std::int64_t CpuBackend::scratch_bytes(const AttentionShape& shape, std::int64_t keys, bool backward) const {
    return tensor::aligned(
        (simd_.attention_scratch_floats(keys, shape.head_channels, backward) + copied_floats(shape, keys, backward)) *
        static_cast<std::int64_t>(sizeof(float)));
}

std::int64_t attention_forward_tiles(const AttentionShape& shape, int threads) {
    return ForwardTiles(shape, threads).count();
}

// body(the tile's index, the thread's scratch for the kernel, and that for copies).
template <class Body>
void CpuBackend::for_tiles(std::int64_t count, const AttentionShape& shape, std::int64_t keys, bool backward,
                           Arena& workspace, Body&& body) {
    const Arena::Scope scope(workspace);
    const std::int64_t bytes = scratch_bytes(shape, keys, backward);
    const std::int64_t kernel_floats = simd_.attention_scratch_floats(keys, shape.head_channels, backward);
    std::byte* const scratch = workspace.allocate_bytes(Category::kWorkspace, pool_.threads() * bytes);
    pool_.parallel_for(count, [&](std::int64_t index, int thread) {
        auto* const mine = reinterpret_cast<float*>(scratch + thread * bytes);
        body(index, mine, mine + kernel_floats);
    });
}

std::int64_t CpuBackend::attention_workspace_bytes(const AttentionShape& shape) const {
    return pool_.threads() * scratch_bytes(shape, shape.length, true);
}

std::int64_t CpuBackend::attention_cached_workspace_bytes(const AttentionShape& shape, std::int64_t keys_max) const {
    return pool_.threads() * scratch_bytes(shape, keys_max, false);
}

void CpuBackend::attention_forward(const AttentionShape& shape, const Tensor& qkv, const Tensor& segment_starts,
                                   const Tensor& out, const Tensor& log_sum_exp, Arena& workspace) {
    check_shape(shape, qkv, out);
    const ForwardTiles tiles(shape, pool_.threads());
    for_tiles(tiles.count(), shape, shape.length, false, workspace, [&](auto index, float* scratch, float* copies) {
        const Heads heads = tiles.at(index);
        AttentionTask task = make_task(shape, heads, segment_starts, log_sum_exp, scratch);
        const auto of_queries = [&](const Tensor& matrix) {
            return Columns(matrix, heads.first_row + heads.first_query, heads.query_count, heads.queries,
                           heads.group * heads.channels, copies);
        };
        const auto of_keys = [&](std::int64_t column) {
            return Columns(qkv, heads.first_row, task.key_count, column, heads.channels, copies);
        };
        const Columns result = of_queries(out.reshape({qkv.rows(), shape.heads * heads.channels}));
        set_operands(task, of_queries(qkv), of_keys(heads.keys), of_keys(heads.values), result);
        simd_.attention_forward(task);
        result.store();
    });
}

void CpuBackend::attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& segment_starts,
                                    const Tensor& out, const Tensor& log_sum_exp, const Tensor& out_gradient,
                                    const Tensor& qkv_gradient, Arena& workspace) {
    check_shape(shape, qkv, out);
    check_shape(shape, qkv_gradient, out_gradient);
    const std::int64_t groups = shape.batch * shape.kv_heads;
    for_tiles(groups, shape, shape.length, true, workspace, [&](auto index, float* scratch, float* copies) {
        const Heads heads(shape, index);
        const auto columns = [&](const Tensor& matrix, std::int64_t first, std::int64_t width) {
            return Columns(matrix, heads.first_row, shape.length, first, width, copies);
        };
        const std::int64_t wide = heads.group * heads.channels, row = shape.heads * heads.channels;
        const Columns of_result = columns(out_gradient.reshape({qkv.rows(), row}), heads.queries, wide);
        const Columns of_queries = columns(qkv_gradient, heads.queries, wide);
        const Columns of_keys = columns(qkv_gradient, heads.keys, heads.channels);
        const Columns of_values = columns(qkv_gradient, heads.values, heads.channels);
        AttentionTask task = make_task(shape, heads, segment_starts, log_sum_exp, scratch);
        set_operands(task, columns(qkv, heads.queries, wide), columns(qkv, heads.keys, heads.channels),
                     columns(qkv, heads.values, heads.channels), of_result);
        // What was rounded when it was written is a worse source than the probabilities.
        task.out =
            shape.format == DType::kF32 ? columns(out.reshape({qkv.rows(), row}), heads.queries, wide).data() : nullptr;
        task.out_gradient = of_result.load();
        task.query_gradient = of_queries.data();
        task.key_gradient = of_keys.data();
        task.value_gradient = of_values.data();
        simd_.attention_backward(task);
        for (const Columns* gradient : {&of_queries, &of_keys, &of_values}) gradient->store();
    });
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
    const std::int64_t groups = shape.batch * shape.kv_heads;
    for_tiles(groups, shape, key_count, false, workspace, [&](auto index, float* scratch, float* copies) {
        const Heads heads(shape, index);
        const std::int64_t wide = heads.group * channels, column = heads.kv_head * channels;
        const Columns queries(qkv, heads.first_row, shape.length, heads.queries, wide, copies);
        const Columns keys(key_cache, heads.sequence * keys_max, key_count, column, channels, copies);
        const Columns values(value_cache, heads.sequence * keys_max, key_count, column, channels, copies);
        const Columns result(out.reshape({qkv.rows(), shape.heads * channels}), heads.first_row, shape.length,
                             heads.queries, wide, copies);
        AttentionTask task = make_task(shape, heads, {}, {}, scratch);
        set_operands(task, queries, keys, values, result);
        task.key_count = key_count;
        simd_.attention_forward(task);
        result.store();
    });
}

}  // namespace atl::kernels::cpu
