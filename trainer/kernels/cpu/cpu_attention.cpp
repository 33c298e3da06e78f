// Attention of CpuBackend: a tile is one key/value head of one sequence, with all query heads that share it.

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

// One key/value head of one sequence with the query heads that share it: where they are in a row.
struct Heads {
    Heads(const AttentionShape& shape, std::int64_t index)
        : sequence(index / shape.kv_heads),
          kv_head(index % shape.kv_heads),
          channels(shape.head_channels),
          group(shape.heads / shape.kv_heads),
          first_row(sequence * shape.length),
          queries(kv_head * group * channels),
          keys((shape.heads + kv_head) * channels),
          values((shape.heads + shape.kv_heads + kv_head) * channels) {}

    std::int64_t sequence, kv_head, channels, group, first_row;
    std::int64_t queries, keys, values;  // columns of qkv; those of the queries are the result's too
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

// Floats that the copies of a tile take.
std::int64_t copied_floats(const AttentionShape& shape, std::int64_t keys, bool backward) {
    if (shape.format == DType::kF32) return 0;
    const std::int64_t group = shape.heads / shape.kv_heads;
    return (2 * group * shape.length + 2 * keys) * shape.head_channels * (backward ? 2 : 1);
}

AttentionTask make_task(const AttentionShape& shape, const Heads& heads, const Tensor& segment_starts,
                        const Tensor& log_sum_exp, float* scratch) {
    AttentionTask task{};
    task.query_count = task.key_count = shape.length;
    task.group = heads.group;
    task.head_channels = heads.channels;
    task.scratch = scratch;
    if (!segment_starts.empty()) task.segment_starts = segment_starts.i32() + heads.first_row;
    if (!log_sum_exp.empty())
        task.log_sum_exp =
            log_sum_exp.f32() + (heads.sequence * shape.heads + heads.kv_head * heads.group) * shape.length;
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

// body(the tile's heads, the thread's scratch for the kernel, and that for copies).
template <class Body>
void CpuBackend::for_heads(const AttentionShape& shape, std::int64_t keys, bool backward, Arena& workspace,
                           Body&& body) {
    const Arena::Scope scope(workspace);
    const std::int64_t bytes = scratch_bytes(shape, keys, backward);
    const std::int64_t kernel_floats = simd_.attention_scratch_floats(keys, shape.head_channels, backward);
    std::byte* const scratch = workspace.allocate_bytes(Category::kWorkspace, pool_.threads() * bytes);
    pool_.parallel_for(shape.batch * shape.kv_heads, [&](std::int64_t index, int thread) {
        auto* const mine = reinterpret_cast<float*>(scratch + thread * bytes);
        body(Heads(shape, index), mine, mine + kernel_floats);
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
    for_heads(shape, shape.length, false, workspace, [&](const Heads& heads, float* scratch, float* copies) {
        const auto columns = [&](const Tensor& matrix, std::int64_t first, std::int64_t width) {
            return Columns(matrix, heads.first_row, shape.length, first, width, copies);
        };
        const std::int64_t wide = heads.group * heads.channels;
        const Columns result = columns(out.reshape({qkv.rows(), shape.heads * heads.channels}), heads.queries, wide);
        AttentionTask task = make_task(shape, heads, segment_starts, log_sum_exp, scratch);
        set_operands(task, columns(qkv, heads.queries, wide), columns(qkv, heads.keys, heads.channels),
                     columns(qkv, heads.values, heads.channels), result);
        simd_.attention_forward(task);
        result.store();
    });
}

void CpuBackend::attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& segment_starts,
                                    const Tensor& out, const Tensor& log_sum_exp, const Tensor& out_gradient,
                                    const Tensor& qkv_gradient, Arena& workspace) {
    check_shape(shape, qkv, out);
    check_shape(shape, qkv_gradient, out_gradient);
    for_heads(shape, shape.length, true, workspace, [&](const Heads& heads, float* scratch, float* copies) {
        const auto columns = [&](const Tensor& matrix, std::int64_t first, std::int64_t width) {
            return Columns(matrix, heads.first_row, shape.length, first, width, copies);
        };
        const std::int64_t wide = heads.group * heads.channels, row = shape.heads * heads.channels;
        const Columns result = columns(out.reshape({qkv.rows(), row}), heads.queries, wide);
        const Columns of_result = columns(out_gradient.reshape({qkv.rows(), row}), heads.queries, wide);
        const Columns of_queries = columns(qkv_gradient, heads.queries, wide);
        const Columns of_keys = columns(qkv_gradient, heads.keys, heads.channels);
        const Columns of_values = columns(qkv_gradient, heads.values, heads.channels);
        AttentionTask task = make_task(shape, heads, segment_starts, log_sum_exp, scratch);
        set_operands(task, columns(qkv, heads.queries, wide), columns(qkv, heads.keys, heads.channels),
                     columns(qkv, heads.values, heads.channels), result);
        result.load();
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
    for_heads(shape, key_count, false, workspace, [&](const Heads& heads, float* scratch, float* copies) {
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
