// The RMS norms of heads of GpuBackend: a head of a row a team of threads, which hold it in registers.

#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/norm.h"
#include "trainer/kernels/gpu/rows.h"

namespace atl::kernels::gpu {
namespace {

// Some of the heads in each row of qkv: those that begin at first_head.
struct Heads {
    Heads(const AttentionShape& shape, std::int64_t first, std::int64_t count)
        : per_row(count),
          items(shape.batch * shape.length * count),
          heads_in_row(static_cast<int>(count)),
          first_head(static_cast<int>(first)),
          queries(static_cast<int>(shape.heads)),
          normed(static_cast<int>(shape.heads + shape.kv_heads)),
          channels(static_cast<int>(shape.head_channels)),
          columns(shape.qkv_columns()) {
        check(count == 0 || items < (std::int64_t{1} << 31), "too many heads for one kernel");
    }
    Divider per_row;
    std::int64_t items;  // heads of all rows
    int heads_in_row, first_head, queries, normed, channels;
    std::int64_t columns;
};

// One of those, by its number among all rows'.
struct Head {
    __device__ Head(const Heads& of, std::int64_t item)
        : row(of.per_row.quotient(static_cast<std::uint32_t>(item))),
          head(static_cast<int>(item - row * of.heads_in_row) + of.first_head),
          at(row * of.columns + static_cast<std::int64_t>(head) * of.channels),
          statistic(row * of.normed + head) {}
    std::int64_t row;
    int head;
    std::int64_t at;         // in qkv
    std::int64_t statistic;  // in rstd, if it is normed
};

// All heads; those of values are copied.
template <class P, class T>
struct NormHeads {
    Heads of;
    P qkv, query_weight, key_weight, out;
    float* rstd;
    float epsilon;
    __device__ void operator()(const Block& block) const {
        PerThread<typename P::Raw> held;
        PerThread<float> squares;
        const std::int64_t first = block.number() * T::kCount;
        block.each_alone([&](int thread) {
            const std::int64_t item = first + T::team(thread);
            squares[thread] = 0.0F;
            if (item >= of.items) return;
            const Head head(of, item);
            T::each_pack(thread, of.channels, [&](int, int channel) {
                held[thread] = qkv.fetch(head.at + channel);
                ATOLL_UNROLL
                for (const float value : qkv.decode(held[thread]).at) squares[thread] += value * value;
            });
        });
        block.sum<T::kTeam>(squares);
        block.each_alone([&](int thread) {
            const std::int64_t item = first + T::team(thread);
            if (item >= of.items) return;
            const Head head(of, item);
            const bool is_normed = head.head < of.normed;
            const float root = reciprocal_root(squares[thread], of.channels, epsilon);
            T::each_pack(thread, of.channels, [&](int, int channel) {
                auto values = qkv.decode(held[thread]);
                if (is_normed)
                    values = normed(
                        values,
                        head.head < of.queries ? query_weight.load_pack(channel) : key_weight.load_pack(channel), root);
                out.store_pack(head.at + channel, values);
            });
            if (is_normed && thread % T::kTeam == 0) rstd[head.statistic] = root;
        });
    }
};

// The heads of queries or those of keys, which have one weight.
template <class P, class T>
struct NormHeadsBackward {
    Heads of;
    P qkv, weight, gradient;
    const float* rstd;
    Partials partials;  // of the weight's gradient, a row a block

    __device__ void operator()(const Block& block) const {
        PerThread<ColumnSums<T>> of_weight;
        block.each_alone([&](int thread) { of_weight[thread] = {}; });
        const std::int64_t step = partials.count * T::kCount;
        for (std::int64_t first = block.number() * T::kCount; first < of.items; first += step)
            do_heads(block, first, of_weight);
        write_column_sums<T>(block, of_weight, of.channels, partials.row(block.number()));
    }

  private:
    __device__ void do_heads(const Block& block, std::int64_t first, PerThread<ColumnSums<T>>& of_weight) const {
        PerThread<typename P::Raw> of_x, of_out;
        PerThread<float> dot;
        block.each_alone([&](int thread) {
            const std::int64_t item = first + T::team(thread);
            dot[thread] = 0.0F;
            if (item >= of.items) return;
            const Head head(of, item);
            const float r = rstd[head.statistic];
            T::each_pack(thread, of.channels, [&](int, int channel) {
                of_x[thread] = qkv.fetch(head.at + channel);
                of_out[thread] = gradient.fetch(head.at + channel);
                const auto value = qkv.decode(of_x[thread]), dy = gradient.decode(of_out[thread]),
                           w = weight.load_pack(channel);
                ATOLL_UNROLL
                for (int i = 0; i < P::kWidth; ++i) {
                    dot[thread] += dy.at[i] * w.at[i] * value.at[i];
                    of_weight[thread].at[i] += dy.at[i] * value.at[i] * r;
                }
            });
        });
        block.sum<T::kTeam>(dot);
        block.each_alone([&](int thread) {
            const std::int64_t item = first + T::team(thread);
            if (item >= of.items) return;
            const Head head(of, item);
            const float r = rstd[head.statistic], along_x = r * r * r * dot[thread] / static_cast<float>(of.channels);
            T::each_pack(thread, of.channels, [&](int, int channel) {
                const auto value = qkv.decode(of_x[thread]), w = weight.load_pack(channel);
                auto of_this = gradient.decode(of_out[thread]);
                ATOLL_UNROLL
                for (int i = 0; i < P::kWidth; ++i) of_this.at[i] = r * w.at[i] * of_this.at[i] - along_x * value.at[i];
                gradient.store_pack(head.at + channel, of_this);
            });
        });
    }
};

// Calls body.operator()<T>() with the Teams for heads of so many channels.
template <class P, class Body>
void with_head_teams(std::int64_t channels, const Body& body) {
    check(channels <= kThreads, "norms of heads on a GPU take heads of at most 256 channels");
    if constexpr (P::kWidth == 1) {
        body.template operator()<Teams<P, kThreads, 1>>();
    } else if (channels <= kLanes / 2 * kPack) {
        body.template operator()<Teams<P, kLanes / 2, 1>>();
    } else {
        body.template operator()<Teams<P, kLanes, 1>>();
    }
}

}  // namespace

void GpuBackend::norm_heads(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                            const Tensor& key_weight, float epsilon, const Tensor& out, const Tensor& rstd) {
    const std::int64_t rows = shape.batch * shape.length;
    check_matrix(qkv, rows, shape.qkv_columns());
    check_matrix(out, rows, shape.qkv_columns());
    check_count(rstd, rows * (shape.heads + shape.kv_heads));
    const Heads all(shape, 0, shape.heads + 2 * shape.kv_heads);
    with_packs(shape.head_channels, {qkv, query_weight, key_weight, out}, [&]<class P>() {
        with_head_teams<P>(shape.head_channels, [&]<class T>() {
            launch(compute(), (all.items + T::kCount - 1) / T::kCount,
                   NormHeads<P, T>{all, P(qkv), P(query_weight), P(key_weight), P(out), rstd.f32(), epsilon});
        });
    });
}

void GpuBackend::norm_heads_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                                     const Tensor& key_weight, const Tensor& rstd, const Tensor& gradient,
                                     const Tensor& query_weight_gradient, const Tensor& key_weight_gradient,
                                     bool accumulate) {
    const std::int64_t rows = shape.batch * shape.length, channels = shape.head_channels;
    check_matrix(qkv, rows, shape.qkv_columns());
    check_matrix(gradient, rows, shape.qkv_columns());
    check_count(rstd, rows * (shape.heads + shape.kv_heads));
    const auto do_heads = [&](const Heads& of, const Tensor& weight, const Tensor& weight_gradient) {
        check_count(weight, channels);
        with_packs(channels, {qkv, weight, gradient}, [&]<class P>() {
            with_head_teams<P>(channels, [&]<class T>() {
                const Partials partials = partials_in(scratch_, channels, (of.items + T::kCount - 1) / T::kCount);
                launch(compute(), partials.count,
                       NormHeadsBackward<P, T>{of, P(qkv), P(weight), P(gradient), rstd.f32(), partials});
                if (weight_gradient.empty()) return;
                check_count(weight_gradient, channels);
                launch_sum_partials(compute(), partials, 0, weight_gradient, accumulate);
            });
        });
    };
    do_heads(Heads(shape, 0, shape.heads), query_weight, query_weight_gradient);
    do_heads(Heads(shape, shape.heads, shape.kv_heads), key_weight, key_weight_gradient);
}

}  // namespace atl::kernels::gpu
