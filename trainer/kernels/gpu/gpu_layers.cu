// Embedding, rotary positions and cross entropy of GpuBackend.

#include <algorithm>

#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/packs.h"

namespace atl::kernels::gpu {
namespace {

template <class P>
struct EmbeddingForward {
    P table, out;
    const std::int32_t* ids;
    std::int64_t columns;
    __device__ void operator()(std::int64_t row, std::int64_t column) const {
        out.store_pack(row * columns + column, table.load_pack(ids[row] * columns + column));
    }
};

// A block for each place in by_id; that of a token's first row adds up all of them, in their order.
template <class P>
struct EmbeddingBackward {
    Packs<Format::kAny, P::kWidth> table_gradient;
    P out_gradient;
    const std::int32_t *ids, *by_id;
    std::int64_t rows, columns;
    bool accumulate;

    __device__ void operator()(const Block& block) const {
        const std::int64_t first = block.number();
        const std::int32_t id = ids[by_id[first]];
        if (first > 0 && ids[by_id[first - 1]] == id) return;
        block.each_alone([&](int thread) {
            for (std::int64_t column = thread * P::kWidth; column < columns; column += kThreads * P::kWidth)
                add_up(first, id, column);
        });
    }

  private:
    static constexpr int kAtOnce = 4;  // rows that are fetched together

    __device__ void add_up(std::int64_t first, std::int32_t id, std::int64_t column) const {
        const std::int64_t at = id * columns + column;
        typename P::Decoded sum{};
        if (accumulate) sum = table_gradient.load_pack(at);
        int count = kAtOnce;
        for (std::int64_t place = first; count == kAtOnce; place += kAtOnce) {
            typename P::Raw fetched[kAtOnce];
            count = 0;
            ATOLL_UNROLL
            for (int i = 0; i < kAtOnce; ++i) {
                const bool is_same = count == i && place + i < rows && ids[by_id[place + i]] == id;
                if (!is_same) continue;
                fetched[i] = out_gradient.fetch(by_id[place + i] * columns + column);
                ++count;
            }
            ATOLL_UNROLL
            for (int i = 0; i < kAtOnce; ++i) {
                if (i < count) add_to(sum, out_gradient.decode(fetched[i]));
            }
        }
        table_gradient.store_pack(at, sum);
    }
};

// How the table, which is fp32, is read beside a tensor in packs as wide.
template <class P>
using TableOf = Packs<P::kWidth == 1 ? Format::kAny : Format::kF32, P::kWidth>;

// A row a block. A thread turns the same pairs of channels, a pack of each half, in one head after another.
template <class P>
struct Rope {
    P qkv;
    TableOf<P> table;
    const std::int32_t* positions;
    int heads, channels;
    std::int64_t columns;
    float direction;
    __device__ void operator()(const Block& block) const {
        const std::int64_t row = block.number(), turn = static_cast<std::int64_t>(positions[row]) * channels;
        const int half = channels / 2, packs = half / P::kWidth, heads_at_once = kThreads / packs;
        block.each_alone([&](int thread) {
            const int first_head = thread / packs, channel = (thread - first_head * packs) * P::kWidth;
            if (first_head >= heads_at_once) return;
            const auto cosine = table.load_pack(turn + channel), sine = table.load_pack(turn + half + channel);
            for (int head = first_head; head < heads; head += heads_at_once) {
                const std::int64_t first = row * columns + static_cast<std::int64_t>(head) * channels + channel;
                const auto of_first = qkv.fetch(first), of_second = qkv.fetch(first + half);
                auto a = qkv.decode(of_first), b = qkv.decode(of_second);
                ATOLL_UNROLL
                for (int i = 0; i < P::kWidth; ++i) {
                    const float s = direction * sine.at[i], x = a.at[i], y = b.at[i];
                    a.at[i] = x * cosine.at[i] - y * s;
                    b.at[i] = y * cosine.at[i] + x * s;
                }
                qkv.store_pack(first, a);
                qkv.store_pack(first + half, b);
            }
        });
    }
};

// The largest of some logits, and Σ exp(logit − largest) of them.
struct Softmax {
    float largest, total;
    __device__ static Softmax of_none() { return {kLowest, 0.0F}; }
    __device__ Softmax operator+(const Softmax& other) const {
        const float most = largest > other.largest ? largest : other.largest;
        return {most, total * expf(largest - most) + other.total * expf(other.largest - most)};
    }
};

// A row a block, which reads it once for the softmax and, backward, once more for the gradient.
template <class P>
struct CrossEntropy {
    P logits;
    const std::int32_t* targets;
    float* losses;
    int vocabulary;
    float gradient_scale;
    const double* loss_scale;  // null: 1
    bool backward;

    __device__ void operator()(const Block& block) const {
        const std::int64_t row = block.number(), at = row * vocabulary;
        const std::int32_t target = targets[row];
        if (target == tensor::kIgnoredLabel) return ignore(block);
        const float target_logit = load_one(at, target);
        PerThread<Softmax> of_thread;
        block.each_alone([&](int thread) {
            Softmax all = Softmax::of_none();
            each_pack(thread, [&](int v) {
                const auto values = logits.load_pack(at + v);
                Softmax of_pack = Softmax::of_none();
                ATOLL_UNROLL
                for (const float value : values.at) of_pack.largest = value > of_pack.largest ? value : of_pack.largest;
                if (of_pack.largest < all.largest) of_pack.largest = all.largest;
                ATOLL_UNROLL
                for (const float value : values.at) of_pack.total += expf(value - of_pack.largest);
                all = {of_pack.largest, all.total * expf(all.largest - of_pack.largest) + of_pack.total};
            });
            of_thread[thread] = all;
        });
        block.combine<kThreads>(of_thread, [](const Softmax& a, const Softmax& b) { return a + b; });
        block.each_alone([&](int thread) {
            const auto [largest, total] = of_thread[thread];
            if (thread == 0) losses[row] = largest - target_logit + logf(total);
            if (backward) write_gradient(at, thread, target, largest, total);
        });
    }

  private:
    template <class Body>
    __device__ void each_pack(int thread, const Body& body) const {
        for (int v = thread * P::kWidth; v < vocabulary; v += kThreads * P::kWidth) body(v);
    }
    __device__ float load_one(std::int64_t at, int v) const {
        const int first = v / P::kWidth * P::kWidth;
        const auto values = logits.load_pack(at + first);
        float one = values.at[0];
        ATOLL_UNROLL
        for (int i = 1; i < P::kWidth; ++i) one = first + i == v ? values.at[i] : one;
        return one;
    }
    __device__ void write_gradient(std::int64_t at, int thread, int target, float largest, float total) const {
        const float scale = loss_scale == nullptr ? gradient_scale : gradient_scale * static_cast<float>(*loss_scale);
        const float factor = scale / total;
        each_pack(thread, [&](int v) {
            auto values = logits.load_pack(at + v);
            ATOLL_UNROLL
            for (int i = 0; i < P::kWidth; ++i) {
                const float probability = expf(values.at[i] - largest) * factor;
                values.at[i] = v + i == target ? probability - scale : probability;
            }
            logits.store_pack(at + v, values);
        });
    }
    __device__ void ignore(const Block& block) const {
        block.each_alone([&](int thread) {
            if (thread == 0) losses[block.number()] = 0.0F;
            if (!backward) return;
            each_pack(thread, [&](int v) { logits.store_pack(block.number() * vocabulary + v, {}); });
        });
    }
};

void launch_cross_entropy(cudaStream_t stream, const Tensor& logits, const Tensor& targets, float gradient_scale,
                          const double* loss_scale, bool backward, const Tensor& losses) {
    check_count(targets, logits.rows());
    check_count(losses, logits.rows());
    check(logits.columns() < (std::int64_t{1} << 30), "a vocabulary is too large");
    with_packs(logits.columns(), {logits}, [&]<class P>() {
        launch(stream, logits.rows(),
               CrossEntropy<P>{P(logits), targets.i32(), losses.f32(), static_cast<int>(logits.columns()),
                               gradient_scale, loss_scale, backward});
    });
}

}  // namespace

void GpuBackend::embedding_forward(const Tensor& table, const Tensor& ids, const Tensor& out) {
    const std::int64_t rows = ids.element_count(), columns = table.columns();
    check_matrix(out, rows, columns);
    with_packs(columns, {table, out}, [&]<class P>() {
        launch_in_rows<P>(compute(), rows, columns, EmbeddingForward<P>{P(table), P(out), ids.i32(), columns});
    });
}

void GpuBackend::embedding_backward(const Tensor& ids, const Tensor& by_id, const Tensor& out_gradient,
                                    const Tensor& table_gradient, bool accumulate) {
    const std::int64_t rows = ids.element_count(), columns = table_gradient.columns();
    check_count(by_id, rows);
    check_matrix(out_gradient, rows, columns);
    if (!accumulate) zero(table_gradient);  // the rows of other tokens
    with_packs(is_aligned(table_gradient) ? columns : 1, {out_gradient}, [&]<class P>() {
        launch(compute(), rows,
               EmbeddingBackward<P>{Packs<Format::kAny, P::kWidth>(table_gradient), P(out_gradient), ids.i32(),
                                    by_id.i32(), rows, columns, accumulate});
    });
}

void GpuBackend::rope(const AttentionShape& shape, const Tensor& table, const Tensor& positions, const Tensor& qkv,
                      bool backward) {
    const std::int64_t rows = shape.batch * shape.length, heads = shape.heads + shape.kv_heads;
    check_matrix(qkv, rows, shape.qkv_columns());
    check_count(positions, rows);
    check(table.columns() == shape.head_channels, "the rope table is of another head size");
    const std::int64_t half = shape.head_channels / 2;
    with_packs(is_aligned(table) ? half : 1, {qkv}, [&]<class P>() {
        check(half / P::kWidth <= kThreads, "heads are too wide for rope on a GPU");
        launch(compute(), rows,
               Rope<P>{P(qkv), TableOf<P>(table), positions.i32(), static_cast<int>(heads),
                       static_cast<int>(shape.head_channels), shape.qkv_columns(), backward ? -1.0F : 1.0F});
    });
}

// Of how many tokens: 2^28 logits, 512 MB in bf16, and 2048 tokens at least. Each chunk reads the head's weights and
// adds to their gradient, in fp32, anew.
std::int64_t GpuBackend::loss_rows(std::int64_t vocabulary) const {
    return gpu::loss_rows(vocabulary);
}

void GpuBackend::cross_entropy_forward(const Tensor& logits, const Tensor& targets, const Tensor& losses) {
    launch_cross_entropy(compute(), logits, targets, 0.0F, nullptr, false, losses);
}

void GpuBackend::cross_entropy_backward(const Tensor& logits, const Tensor& targets, float gradient_scale,
                                        const Tensor& loss_scale, const Tensor& losses) {
    launch_cross_entropy(compute(), logits, targets, gradient_scale, loss_scale.empty() ? nullptr : loss_scale.f64(),
                         true, losses);
}

}  // namespace atl::kernels::gpu
