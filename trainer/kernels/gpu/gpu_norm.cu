// The norms of GpuBackend: a row a block, then the gradients of weights, a column a thread. Those are taken first, as
// the gradient of x may lie where that of the result did.

#include "trainer/kernels/gpu/elements.h"
#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/launch.h"

namespace atl::kernels::gpu {
namespace {

__device__ float reciprocal_root(float sum_of_squares, std::int64_t columns, float epsilon) {
    return 1.0F / sqrtf(sum_of_squares / static_cast<float>(columns) + epsilon);
}

struct RmsNormForward {
    Elements x, weight, out;
    float* rstd;
    std::int64_t columns;
    float epsilon;
    __device__ void operator()(const Block& block) const {
        const std::int64_t row = block.number(), at = row * columns;
        const float squares = block.sum(columns, [&](std::int64_t c) { return x.load(at + c) * x.load(at + c); });
        const float root = reciprocal_root(squares, columns, epsilon);
        block.each_of(columns, [&](std::int64_t c) { out.store(at + c, x.load(at + c) * root * weight.load(c)); });
        block.once([&] { rstd[row] = root; });
    }
};

struct RmsNormApply {
    Elements x, weight, out;
    const float* rstd;
    std::int64_t columns;
    __device__ void operator()(std::int64_t i) const {
        out.store(i, x.load(i) * rstd[i / columns] * weight.load(i % columns));
    }
};

// With y = x·r·w:  dx = r·w·dy − x·r³/C·Σ(dy·w·x).
struct RmsNormBackward {
    Elements x, weight, out_gradient, residual_gradient, x_gradient;
    const float* rstd;
    std::int64_t columns;
    __device__ void operator()(const Block& block) const {
        const std::int64_t at = block.number() * columns;
        const float dot = block.sum(
            columns, [&](std::int64_t c) { return out_gradient.load(at + c) * weight.load(c) * x.load(at + c); });
        const float r = rstd[block.number()], along_x = r * r * r * dot / static_cast<float>(columns);
        block.each_of(columns, [&](std::int64_t c) {
            const float through = r * weight.load(c) * out_gradient.load(at + c) - along_x * x.load(at + c);
            x_gradient.store(at + c, residual_gradient.empty() ? through : residual_gradient.load(at + c) + through);
        });
    }
};

// dw = Σ_rows dy·x·r.
struct RmsNormWeightGradient {
    Elements x, out_gradient, gradient;
    const float* rstd;
    std::int64_t rows, columns;
    bool accumulate;
    __device__ void operator()(std::int64_t c) const {
        const float sum = sum_in_runs(rows, [&](std::int64_t row) {
            return out_gradient.load(row * columns + c) * x.load(row * columns + c) * rstd[row];
        });
        gradient.store(c, accumulate ? gradient.load(c) + sum : sum);
    }
};

struct LayerNormForward {
    Elements x, weight, bias, out;
    float* moments;
    std::int64_t columns;
    float epsilon;
    // The variance is that of the differences from the mean: Σx² − C·mean² would lose digits.
    __device__ void operator()(const Block& block) const {
        const std::int64_t row = block.number(), at = row * columns;
        const float total = block.sum(columns, [&](std::int64_t c) { return x.load(at + c); });
        const float mean = total / static_cast<float>(columns);
        const float squares = block.sum(columns, [&](std::int64_t c) {
            const float delta = x.load(at + c) - mean;
            return delta * delta;
        });
        const float root = reciprocal_root(squares, columns, epsilon);
        block.each_of(columns, [&](std::int64_t c) {
            out.store(at + c, (x.load(at + c) - mean) * root * weight.load(c) + bias.load(c));
        });
        block.once([&] {
            moments[2 * row] = mean;
            moments[2 * row + 1] = root;
        });
    }
};

struct LayerNormApply {
    Elements x, weight, bias, out;
    const float* moments;
    std::int64_t columns;
    __device__ void operator()(std::int64_t i) const {
        const float mean = moments[i / columns * 2], root = moments[i / columns * 2 + 1];
        out.store(i, (x.load(i) - mean) * root * weight.load(i % columns) + bias.load(i % columns));
    }
};

// With n = (x − m)·r, y = n·w + b, g = w·dy:  dx = r·(g − mean(g) − n·mean(g·n)).
struct LayerNormBackward {
    Elements x, weight, out_gradient, residual_gradient, x_gradient;
    const float* moments;
    std::int64_t columns;
    __device__ void operator()(const Block& block) const {
        const std::int64_t at = block.number() * columns;
        const float mean = moments[2 * block.number()], r = moments[2 * block.number() + 1];
        const float share = 1.0F / static_cast<float>(columns);
        const auto g = [&](std::int64_t c) { return out_gradient.load(at + c) * weight.load(c); };
        const auto n = [&](std::int64_t c) { return (x.load(at + c) - mean) * r; };
        const float mean_g = block.sum(columns, g) * share;
        const float mean_gn = block.sum(columns, [&](std::int64_t c) { return g(c) * n(c); }) * share;
        block.each_of(columns, [&](std::int64_t c) {
            const float through = r * (g(c) - mean_g - n(c) * mean_gn);
            x_gradient.store(at + c, residual_gradient.empty() ? through : residual_gradient.load(at + c) + through);
        });
    }
};

// dw = Σ_rows dy·n,  db = Σ_rows dy.
struct LayerNormWeightGradient {
    Elements x, out_gradient, weight_gradient, bias_gradient;
    const float* moments;
    std::int64_t rows, columns;
    bool accumulate;
    __device__ void operator()(std::int64_t c) const {
        const auto dy = [&](std::int64_t row) { return out_gradient.load(row * columns + c); };
        const auto write = [&](const Elements& gradient, float sum) {
            gradient.store(c, accumulate ? gradient.load(c) + sum : sum);
        };
        if (!weight_gradient.empty()) {
            write(weight_gradient, sum_in_runs(rows, [&](std::int64_t row) {
                      return dy(row) * ((x.load(row * columns + c) - moments[2 * row]) * moments[2 * row + 1]);
                  }));
        }
        if (!bias_gradient.empty()) write(bias_gradient, sum_in_runs(rows, dy));
    }
};

// Of the heads in a row of qkv: which there are, and where.
struct HeadRows {
    explicit HeadRows(const AttentionShape& shape)
        : heads(shape.heads), kv_heads(shape.kv_heads), channels(shape.head_channels), columns(shape.qkv_columns()) {}
    std::int64_t heads, kv_heads, channels, columns;
    __device__ std::int64_t normed() const { return heads + kv_heads; }
    __device__ std::int64_t at(std::int64_t row, std::int64_t head) const { return row * columns + head * channels; }
};

// A head a block; those of values are copied.
struct NormHeads {
    HeadRows of;
    Elements qkv, query_weight, key_weight, out;
    float* rstd;
    float epsilon;
    __device__ void operator()(const Block& block) const {
        const std::int64_t heads = of.normed() + of.kv_heads;
        const std::int64_t row = block.number() / heads, head = block.number() % heads, at = of.at(row, head);
        if (head >= of.normed()) {
            block.each_of(of.channels, [&](std::int64_t c) { out.store(at + c, qkv.load(at + c)); });
            return;
        }
        const Elements& weight = head < of.heads ? query_weight : key_weight;
        const float squares =
            block.sum(of.channels, [&](std::int64_t c) { return qkv.load(at + c) * qkv.load(at + c); });
        const float root = reciprocal_root(squares, of.channels, epsilon);
        block.each_of(of.channels,
                      [&](std::int64_t c) { out.store(at + c, qkv.load(at + c) * root * weight.load(c)); });
        block.once([&] { rstd[row * of.normed() + head] = root; });
    }
};

struct NormHeadsBackward {
    HeadRows of;
    Elements qkv, query_weight, key_weight, gradient;
    const float* rstd;
    __device__ void operator()(const Block& block) const {
        const std::int64_t row = block.number() / of.normed(), head = block.number() % of.normed();
        const std::int64_t at = of.at(row, head);
        const Elements& weight = head < of.heads ? query_weight : key_weight;
        const float dot = block.sum(
            of.channels, [&](std::int64_t c) { return gradient.load(at + c) * weight.load(c) * qkv.load(at + c); });
        const float r = rstd[block.number()], along_x = r * r * r * dot / static_cast<float>(of.channels);
        block.each_of(of.channels, [&](std::int64_t c) {
            gradient.store(at + c, r * weight.load(c) * gradient.load(at + c) - along_x * qkv.load(at + c));
        });
    }
};

// Over all rows and the heads [first_head, first_head + head_count), a channel a thread.
struct HeadWeightGradient {
    HeadRows of;
    Elements qkv, out_gradient, gradient;
    const float* rstd;
    std::int64_t rows, first_head, head_count;
    bool accumulate;
    __device__ void operator()(std::int64_t c) const {
        const float sum = sum_in_runs(rows * head_count, [&](std::int64_t i) {
            const std::int64_t row = i / head_count, head = first_head + i % head_count, at = of.at(row, head) + c;
            return out_gradient.load(at) * qkv.load(at) * rstd[row * of.normed() + head];
        });
        gradient.store(c, accumulate ? gradient.load(c) + sum : sum);
    }
};

void check_like(const Tensor& x, std::initializer_list<Tensor> others) {
    check_matrix(x, x.rows(), x.columns());
    for (const Tensor& other : others) {
        if (!other.empty()) check_matrix(other, x.rows(), x.columns());
    }
}

}  // namespace

void GpuBackend::rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& out,
                                 const Tensor& rstd) {
    check_like(x, {out});
    check_count(weight, x.columns());
    check_count(rstd, x.rows());
    launch(compute(), x.rows(),
           RmsNormForward{Elements(x), Elements(weight), Elements(out), rstd.f32(), x.columns(), epsilon});
}

void GpuBackend::add_rmsnorm_forward(const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                                     const Tensor& sum, const Tensor& out, const Tensor& rstd) {
    add(x, delta, sum);
    rmsnorm_forward(sum, weight, epsilon, out, rstd);
}

void GpuBackend::rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out) {
    check_like(x, {out});
    check_count(weight, x.columns());
    check_count(rstd, x.rows());
    launch_for_each(compute(), x.element_count(),
                    RmsNormApply{Elements(x), Elements(weight), Elements(out), rstd.f32(), x.columns()});
}

void GpuBackend::rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                                  const Tensor& residual_gradient, const Tensor& x_gradient,
                                  const Tensor& weight_gradient, bool accumulate) {
    check_like(x, {out_gradient, residual_gradient, x_gradient});
    check_count(weight, x.columns());
    check_count(rstd, x.rows());
    if (!weight_gradient.empty()) {
        check_count(weight_gradient, x.columns());
        launch_for_each(compute(), x.columns(),
                        RmsNormWeightGradient{Elements(x), Elements(out_gradient), Elements(weight_gradient),
                                              rstd.f32(), x.rows(), x.columns(), accumulate});
    }
    launch(compute(), x.rows(),
           RmsNormBackward{Elements(x), Elements(weight), Elements(out_gradient), Elements(residual_gradient),
                           Elements(x_gradient), rstd.f32(), x.columns()});
}

void GpuBackend::norm_heads(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                            const Tensor& key_weight, float epsilon, const Tensor& out, const Tensor& rstd) {
    const std::int64_t rows = shape.batch * shape.length;
    check_matrix(qkv, rows, shape.qkv_columns());
    check_matrix(out, rows, shape.qkv_columns());
    check_count(rstd, rows * (shape.heads + shape.kv_heads));
    launch(compute(), rows * (shape.heads + 2 * shape.kv_heads),
           NormHeads{HeadRows(shape), Elements(qkv), Elements(query_weight), Elements(key_weight), Elements(out),
                     rstd.f32(), epsilon});
}

void GpuBackend::norm_heads_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                                     const Tensor& key_weight, const Tensor& rstd, const Tensor& gradient,
                                     const Tensor& query_weight_gradient, const Tensor& key_weight_gradient,
                                     bool accumulate) {
    const std::int64_t rows = shape.batch * shape.length, normed = shape.heads + shape.kv_heads;
    check_matrix(qkv, rows, shape.qkv_columns());
    check_matrix(gradient, rows, shape.qkv_columns());
    check_count(rstd, rows * normed);
    const auto add_weight_gradient = [&](const Tensor& of_weight, std::int64_t first_head, std::int64_t head_count) {
        if (of_weight.empty()) return;
        check_count(of_weight, shape.head_channels);
        launch_for_each(compute(), shape.head_channels,
                        HeadWeightGradient{HeadRows(shape), Elements(qkv), Elements(gradient), Elements(of_weight),
                                           rstd.f32(), rows, first_head, head_count, accumulate});
    };
    add_weight_gradient(query_weight_gradient, 0, shape.heads);
    add_weight_gradient(key_weight_gradient, shape.heads, shape.kv_heads);
    launch(compute(), rows * normed,
           NormHeadsBackward{HeadRows(shape), Elements(qkv), Elements(query_weight), Elements(key_weight),
                             Elements(gradient), rstd.f32()});
}

void GpuBackend::layernorm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, float epsilon,
                                   const Tensor& out, const Tensor& moments) {
    check_like(x, {out});
    check_count(moments, 2 * x.rows());
    launch(compute(), x.rows(),
           LayerNormForward{Elements(x), Elements(weight), Elements(bias), Elements(out), moments.f32(), x.columns(),
                            epsilon});
}

void GpuBackend::layernorm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& moments,
                                 const Tensor& out) {
    check_like(x, {out});
    check_count(moments, 2 * x.rows());
    launch_for_each(
        compute(), x.element_count(),
        LayerNormApply{Elements(x), Elements(weight), Elements(bias), Elements(out), moments.f32(), x.columns()});
}

void GpuBackend::layernorm_backward(const Tensor& x, const Tensor& weight, const Tensor& moments,
                                    const Tensor& out_gradient, const Tensor& residual_gradient,
                                    const Tensor& x_gradient, const Tensor& weight_gradient,
                                    const Tensor& bias_gradient, bool accumulate) {
    check_like(x, {out_gradient, residual_gradient, x_gradient});
    check_count(moments, 2 * x.rows());
    launch_for_each(compute(), x.columns(),
                    LayerNormWeightGradient{Elements(x), Elements(out_gradient), Elements(weight_gradient),
                                            Elements(bias_gradient), moments.f32(), x.rows(), x.columns(), accumulate});
    launch(compute(), x.rows(),
           LayerNormBackward{Elements(x), Elements(weight), Elements(out_gradient), Elements(residual_gradient),
                             Elements(x_gradient), moments.f32(), x.columns()});
}

}  // namespace atl::kernels::gpu
