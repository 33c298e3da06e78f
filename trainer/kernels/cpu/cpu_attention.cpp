// Attention of CpuBackend: a tile is one key/value head of one sequence, with all query heads that share it.

#include <cstring>

#include "trainer/kernels/cpu/cpu_backend.h"

namespace atl::kernels::cpu {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

void check_shape(const AttentionShape& shape, const Tensor& qkv, const Tensor& out) {
    const std::int64_t rows = shape.batch * shape.length;
    check(shape.heads % shape.kv_heads == 0, "query heads are a multiple of key/value heads");
    check(qkv.contiguous() && qkv.rows() == rows && qkv.columns() == shape.qkv_columns(), "qkv has another shape");
    check(out.contiguous() && out.element_count() == rows * shape.heads * shape.head_channels,
          "attention's out has another shape");
}

// What forward and backward share: operands inside qkv rows, of tile number `index`.
AttentionTask make_task(const AttentionShape& shape, std::int64_t index, const float* qkv, const std::int32_t* starts,
                        float* out, float* log_sum_exp) {
    const std::int64_t sequence = index / shape.kv_heads, kv_head = index % shape.kv_heads;
    const std::int64_t channels = shape.head_channels, group = shape.heads / shape.kv_heads;
    const std::int64_t columns = shape.qkv_columns(), row = sequence * shape.length;
    const float* const begin = qkv + row * columns;
    AttentionTask task{};
    task.queries = begin + kv_head * group * channels;
    task.keys = begin + (shape.heads + kv_head) * channels;
    task.values = begin + (shape.heads + shape.kv_heads + kv_head) * channels;
    task.query_stride = task.kv_stride = columns;
    task.segment_starts = starts == nullptr ? nullptr : starts + row;
    task.query_count = task.key_count = shape.length;
    task.group = group;
    task.head_channels = channels;
    task.out_stride = shape.heads * channels;
    task.out = out + row * task.out_stride + kv_head * group * channels;
    if (log_sum_exp != nullptr) {
        task.log_sum_exp = log_sum_exp + (sequence * shape.heads + kv_head * group) * shape.length;
    }
    return task;
}

}  // namespace

std::int64_t CpuBackend::scratch_bytes(std::int64_t keys, std::int64_t head_channels, bool backward) const {
    return tensor::aligned(simd_.attention_scratch_floats(keys, head_channels, backward) *
                           static_cast<std::int64_t>(sizeof(float)));
}

template <class Body>
void CpuBackend::for_heads(const AttentionShape& shape, std::int64_t keys, bool backward, Arena& workspace,
                           Body&& body) {
    const Arena::Scope scope(workspace);
    const std::int64_t bytes = scratch_bytes(keys, shape.head_channels, backward);
    std::byte* const scratch = workspace.allocate_bytes(Category::kWorkspace, pool_.threads() * bytes);
    pool_.parallel_for(shape.batch * shape.kv_heads, [&](std::int64_t index, int thread) {
        body(index, reinterpret_cast<float*>(scratch + thread * bytes));
    });
}

std::int64_t CpuBackend::attention_workspace_bytes(const AttentionShape& shape) const {
    return pool_.threads() * scratch_bytes(shape.length, shape.head_channels, true);
}

std::int64_t CpuBackend::attention_cached_workspace_bytes(const AttentionShape& shape, std::int64_t keys_max) const {
    return pool_.threads() * scratch_bytes(keys_max, shape.head_channels, false);
}

void CpuBackend::attention_forward(const AttentionShape& shape, const Tensor& qkv, const Tensor& segment_starts,
                                   const Tensor& out, const Tensor& log_sum_exp, Arena& workspace) {
    check_shape(shape, qkv, out);
    for_heads(shape, shape.length, false, workspace, [&](std::int64_t index, float* scratch) {
        AttentionTask task = make_task(shape, index, qkv.f32(), segment_starts.i32(), out.f32(), log_sum_exp.f32());
        task.scratch = scratch;
        simd_.attention_forward(task);
    });
}

void CpuBackend::attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& segment_starts,
                                    const Tensor& out, const Tensor& log_sum_exp, const Tensor& out_gradient,
                                    const Tensor& qkv_gradient, Arena& workspace) {
    check_shape(shape, qkv, out);
    check_shape(shape, qkv_gradient, out_gradient);
    for_heads(shape, shape.length, true, workspace, [&](std::int64_t index, float* scratch) {
        AttentionTask task = make_task(shape, index, qkv.f32(), segment_starts.i32(), out.f32(), log_sum_exp.f32());
        task.scratch = scratch;
        task.out_gradient = out_gradient.f32() + (task.out - out.f32());
        task.query_gradient = qkv_gradient.f32() + (task.queries - qkv.f32());
        task.key_gradient = qkv_gradient.f32() + (task.keys - qkv.f32());
        task.value_gradient = qkv_gradient.f32() + (task.values - qkv.f32());
        simd_.attention_backward(task);
    });
}

void CpuBackend::attention_cached(const AttentionShape& shape, const Tensor& qkv, std::int64_t past,
                                  const Tensor& key_cache, const Tensor& value_cache, const Tensor& out,
                                  Arena& workspace) {
    check_shape(shape, qkv, out);
    const std::int64_t channels = shape.head_channels, width = shape.kv_heads * channels;
    const std::int64_t keys_max = key_cache.rows() / shape.batch;
    check(past + shape.length <= keys_max && key_cache.columns() == width && value_cache.columns() == width,
          "the key/value cache is too small");
    for (std::int64_t row = 0; row < shape.batch * shape.length; ++row) {
        const float* const keys = qkv.f32() + row * shape.qkv_columns() + shape.heads * channels;
        const std::int64_t at = (row / shape.length * keys_max + past + row % shape.length) * width;
        std::memcpy(key_cache.f32() + at, keys, static_cast<std::size_t>(width) * sizeof(float));
        std::memcpy(value_cache.f32() + at, keys + width, static_cast<std::size_t>(width) * sizeof(float));
    }
    for_heads(shape, past + shape.length, false, workspace, [&](std::int64_t index, float* scratch) {
        const std::int64_t sequence = index / shape.kv_heads, kv_head = index % shape.kv_heads;
        AttentionTask task = make_task(shape, index, qkv.f32(), nullptr, out.f32(), nullptr);
        const std::int64_t at = sequence * keys_max * width + kv_head * channels;
        task.keys = key_cache.f32() + at;
        task.values = value_cache.f32() + at;
        task.kv_stride = width;
        task.key_count = past + shape.length;
        task.scratch = scratch;
        simd_.attention_forward(task);
    });
}

}  // namespace atl::kernels::cpu
