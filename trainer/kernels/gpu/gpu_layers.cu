// Embedding, rotary positions and cross entropy of GpuBackend.

#include <algorithm>

#include "trainer/kernels/gpu/elements.h"
#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/launch.h"

namespace atl::kernels::gpu {
namespace {

struct EmbeddingForward {
    Elements table, out;
    const std::int32_t* ids;
    std::int64_t columns;
    __device__ void operator()(std::int64_t i) const {
        out.store(i, table.load(ids[i / columns] * columns + i % columns));
    }
};

// A channel a thread, so that a token which occurs twice is added in row order.
struct EmbeddingBackward {
    Elements out_gradient, table_gradient;
    const std::int32_t* ids;
    std::int64_t rows, columns;
    __device__ void operator()(std::int64_t c) const {
        for (std::int64_t row = 0; row < rows; ++row) {
            const std::int64_t at = ids[row] * columns + c;
            table_gradient.store(at, table_gradient.load(at) + out_gradient.load(row * columns + c));
        }
    }
};

// A pair of channels a thread.
struct Rope {
    Elements qkv;
    const float* table;
    const std::int32_t* positions;
    std::int64_t heads, channels, columns;
    float direction;
    __device__ void operator()(std::int64_t i) const {
        const std::int64_t half = channels / 2, pair = i % half, head = i / half % heads, row = i / half / heads;
        const std::int64_t first = row * columns + head * channels + pair, second = first + half;
        const float* const turn = table + positions[row] * channels + pair;
        const float cosine = turn[0], sine = direction * turn[half], a = qkv.load(first), b = qkv.load(second);
        qkv.store(first, a * cosine - b * sine);
        qkv.store(second, b * cosine + a * sine);
    }
};

// A row a block.
struct CrossEntropy {
    Elements logits;
    const std::int32_t* targets;
    float* losses;
    std::int64_t vocabulary;
    float gradient_scale;
    const double* loss_scale;  // null: 1
    bool backward;
    __device__ void operator()(const Block& block) const {
        const std::int64_t row = block.number(), at = row * vocabulary;
        const std::int32_t target = targets[row];
        if (target == tensor::kIgnoredLabel) return ignore(block);
        const float target_logit = logits.load(at + target);
        const float largest = block.max(vocabulary, [&](std::int64_t v) { return logits.load(at + v); });
        const float total = block.sum(vocabulary, [&](std::int64_t v) { return expf(logits.load(at + v) - largest); });
        block.once([&] { losses[row] = largest - target_logit + logf(total); });
        if (!backward) return;
        const float scale = loss_scale == nullptr ? gradient_scale : gradient_scale * static_cast<float>(*loss_scale);
        const float factor = scale / total;
        block.each_of(vocabulary, [&](std::int64_t v) {
            const float probability = expf(logits.load(at + v) - largest) * factor;
            logits.store(at + v, v == target ? probability - scale : probability);
        });
    }

  private:
    __device__ void ignore(const Block& block) const {
        block.once([&] { losses[block.number()] = 0.0F; });
        if (!backward) return;
        block.each_of(vocabulary, [&](std::int64_t v) { logits.store(block.number() * vocabulary + v, 0.0F); });
    }
};

}  // namespace

void GpuBackend::embedding_forward(const Tensor& table, const Tensor& ids, const Tensor& out) {
    const std::int64_t rows = ids.element_count(), columns = table.columns();
    check_matrix(out, rows, columns);
    launch_for_each(compute(), rows * columns, EmbeddingForward{Elements(table), Elements(out), ids.i32(), columns});
}

void GpuBackend::embedding_backward(const Tensor& ids, const Tensor& out_gradient, const Tensor& table_gradient,
                                    bool accumulate) {
    const std::int64_t rows = ids.element_count(), columns = table_gradient.columns();
    check_matrix(out_gradient, rows, columns);
    if (!accumulate) zero(table_gradient);
    launch_for_each(compute(), columns,
                    EmbeddingBackward{Elements(out_gradient), Elements(table_gradient), ids.i32(), rows, columns});
}

void GpuBackend::rope(const AttentionShape& shape, const Tensor& table, const Tensor& positions, const Tensor& qkv,
                      bool backward) {
    const std::int64_t rows = shape.batch * shape.length, heads = shape.heads + shape.kv_heads;
    check_matrix(qkv, rows, shape.qkv_columns());
    check_count(positions, rows);
    check(table.columns() == shape.head_channels, "the rope table is of another head size");
    launch_for_each(compute(), rows * heads * (shape.head_channels / 2),
                    Rope{Elements(qkv), table.f32(), positions.i32(), heads, shape.head_channels, shape.qkv_columns(),
                         backward ? -1.0F : 1.0F});
}

// 256 MB of logits in bf16: each chunk reads the head's weights and adds to their gradients anew.
std::int64_t GpuBackend::loss_rows(std::int64_t vocabulary) const {
    return std::max<std::int64_t>(1, (std::int64_t{1} << 27) / vocabulary);
}

void GpuBackend::cross_entropy_forward(const Tensor& logits, const Tensor& targets, const Tensor& losses) {
    check_count(targets, logits.rows());
    check_count(losses, logits.rows());
    launch(compute(), logits.rows(),
           CrossEntropy{Elements(logits), targets.i32(), losses.f32(), logits.columns(), 0.0F, nullptr, false});
}

void GpuBackend::cross_entropy_backward(const Tensor& logits, const Tensor& targets, float gradient_scale,
                                        const Tensor& loss_scale, const Tensor& losses) {
    check_count(targets, logits.rows());
    check_count(losses, logits.rows());
    launch(compute(), logits.rows(),
           CrossEntropy{Elements(logits), targets.i32(), losses.f32(), logits.columns(), gradient_scale,
                        loss_scale.empty() ? nullptr : loss_scale.f64(), true});
}

}  // namespace atl::kernels::gpu
