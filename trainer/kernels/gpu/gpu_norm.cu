// The norms of GpuBackend: a row a team of threads, which hold it in registers. The gradients of weights and biases are
// added up beside those of x: a partial sum a block, then the sum of these.

#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/norm.h"
#include "trainer/kernels/gpu/rows.h"

namespace atl::kernels::gpu {
namespace {

// Without a delta, kept is x and the norm is of that; else kept = x + delta.
template <class P, class T>
struct RmsNormForward {
    P x, delta, weight, kept, out;
    float* rstd;
    std::int64_t rows;
    int columns;
    float epsilon;

    __device__ void operator()(const Block& block) const {
        PerThread<Row<P, T>> held;
        PerThread<float> squares;
        const std::int64_t first = block.number() * T::kCount;
        block.each_alone([&](int thread) {
            const std::int64_t row = first + T::team(thread);
            squares[thread] = 0.0F;
            if (row >= rows) return;
            read(row, thread, held[thread]);
            T::each_pack(thread, columns, [&](int pack, int column) {
                const auto values = held[thread].decode(kept, row * columns, pack, column);
                ATOLL_UNROLL
                for (const float value : values.at) squares[thread] += value * value;
            });
        });
        block.sum<T::kTeam>(squares);
        block.each_alone([&](int thread) {
            const std::int64_t row = first + T::team(thread);
            if (row >= rows) return;
            const float root = reciprocal_root(squares[thread], columns, epsilon);
            T::each_pack(thread, columns, [&](int pack, int column) {
                const auto values = held[thread].decode(kept, row * columns, pack, column);
                out.store_pack(row * columns + column, normed(values, weight.load_pack(column), root));
            });
            if (thread % T::kTeam == 0) rstd[row] = root;
        });
    }

  private:
    __device__ void read(std::int64_t row, int thread, Row<P, T>& held) const {
        held.fetch(x, row * columns, thread, columns);
        if (delta.empty()) return;
        Row<P, T> added;
        added.fetch(delta, row * columns, thread, columns);
        T::each_pack(thread, columns, [&](int pack, int column) {
            auto sum = held.decode(x, row * columns, pack, column);
            const auto more = added.decode(delta, row * columns, pack, column);
            ATOLL_UNROLL
            for (int i = 0; i < P::kWidth; ++i) sum.at[i] += more.at[i];
            held.packs[pack] = kept.encode(sum);
            kept.put(row * columns + column, held.packs[pack]);
        });
    }
};

template <class P>
struct RmsNormApply {
    P x, weight, out;
    const float* rstd;
    std::int64_t columns;
    __device__ void operator()(std::int64_t row, std::int64_t column) const {
        const std::int64_t at = row * columns + column;
        const auto of_x = x.fetch(at), of_weight = weight.fetch(column);
        out.store_pack(at, normed(x.decode(of_x), weight.decode(of_weight), rstd[row]));
    }
};

// With y = x·r·w:  dx = r·w·dy − x·r³/C·Σ(dy·w·x),  dw = Σ_rows dy·x·r.
template <class P, class T>
struct RmsNormBackward {
    P x, weight, out_gradient, residual_gradient, x_gradient;
    const float* rstd;
    std::int64_t rows;
    int columns;
    Partials partials;  // of dw, a row a block

    __device__ void operator()(const Block& block) const {
        PerThread<ColumnSums<T>> of_weight;
        block.each_alone([&](int thread) { of_weight[thread] = {}; });
        const std::int64_t step = partials.count * T::kCount;
        for (std::int64_t first = block.number() * T::kCount; first < rows; first += step)
            do_rows(block, first, of_weight);
        if constexpr (T::kHeld > 0) write_column_sums<T>(block, of_weight, columns, partials.row(block.number()));
    }

  private:
    __device__ void do_rows(const Block& block, std::int64_t first, PerThread<ColumnSums<T>>& of_weight) const {
        PerThread<Row<P, T>> of_x, of_out, of_residual;
        PerThread<float> dot;
        block.each_alone([&](int thread) {
            const std::int64_t row = first + T::team(thread);
            dot[thread] = 0.0F;
            if (row >= rows) return;
            of_x[thread].fetch(x, row * columns, thread, columns);
            of_out[thread].fetch(out_gradient, row * columns, thread, columns);
            if (!residual_gradient.empty())
                of_residual[thread].fetch(residual_gradient, row * columns, thread, columns);
            const float r = rstd[row];
            T::each_pack(thread, columns, [&](int pack, int column) {
                const auto value = of_x[thread].decode(x, row * columns, pack, column);
                const auto dy = of_out[thread].decode(out_gradient, row * columns, pack, column);
                const auto w = weight.load_pack(column);
                ATOLL_UNROLL
                for (int i = 0; i < P::kWidth; ++i) {
                    dot[thread] += dy.at[i] * w.at[i] * value.at[i];
                    if constexpr (T::kHeld > 0)
                        of_weight[thread].at[pack * P::kWidth + i] += dy.at[i] * value.at[i] * r;
                }
            });
        });
        block.sum<T::kTeam>(dot);
        block.each_alone([&](int thread) {
            const std::int64_t row = first + T::team(thread);
            if (row >= rows) return;
            const float r = rstd[row], along_x = r * r * r * dot[thread] / static_cast<float>(columns);
            T::each_pack(thread, columns, [&](int pack, int column) {
                const auto value = of_x[thread].decode(x, row * columns, pack, column);
                auto gradient = of_out[thread].decode(out_gradient, row * columns, pack, column);
                const auto w = weight.load_pack(column);
                ATOLL_UNROLL
                for (int i = 0; i < P::kWidth; ++i)
                    gradient.at[i] = r * w.at[i] * gradient.at[i] - along_x * value.at[i];
                if (!residual_gradient.empty())
                    add_to(gradient, of_residual[thread].decode(residual_gradient, row * columns, pack, column));
                x_gradient.store_pack(row * columns + column, gradient);
            });
        });
    }
};

// dw alone, of rows that no team holds.
template <class P>
struct RmsNormWeightTerm {
    P x, out_gradient;
    const float* rstd;
    std::int64_t columns;
    __device__ typename P::Decoded operator()(std::int64_t row, int column) const {
        const std::int64_t at = row * columns + column;
        const auto of_x = x.fetch(at), of_out = out_gradient.fetch(at);
        const auto value = x.decode(of_x);
        auto term = out_gradient.decode(of_out);
        ATOLL_UNROLL
        for (int i = 0; i < P::kWidth; ++i) term.at[i] *= value.at[i] * rstd[row];
        return term;
    }
};

template <class P>
__device__ typename P::Decoded standardised(typename P::Decoded values, float mean, float root) {
    ATOLL_UNROLL
    for (int i = 0; i < P::kWidth; ++i) values.at[i] = (values.at[i] - mean) * root;
    return values;
}

template <class P>
__device__ typename P::Decoded layer_normed(typename P::Decoded values, float mean, float root,
                                            const typename P::Decoded& weight, const typename P::Decoded& bias) {
    values = standardised<P>(values, mean, root);
    ATOLL_UNROLL
    for (int i = 0; i < P::kWidth; ++i) values.at[i] = values.at[i] * weight.at[i] + bias.at[i];
    return values;
}

template <class P, class T>
struct LayerNormForward {
    P x, weight, bias, out;
    float* moments;
    std::int64_t rows;
    int columns;
    float epsilon;

    // The variance is that of the differences from the mean: Σx² − C·mean² would lose digits.
    __device__ void operator()(const Block& block) const {
        PerThread<Row<P, T>> held;
        PerThread<float> means, squares;
        const std::int64_t first = block.number() * T::kCount;
        const float share = 1.0F / static_cast<float>(columns);
        block.each_alone([&](int thread) {
            const std::int64_t row = first + T::team(thread);
            if (row < rows) held[thread].fetch(x, row * columns, thread, columns);
            means[thread] = add_up(row, thread, held[thread], [](float value) { return value; });
        });
        block.sum<T::kTeam>(means);
        block.each_alone([&](int thread) {
            const float mean = means[thread] * share;
            squares[thread] = add_up(first + T::team(thread), thread, held[thread],
                                     [&](float value) { return (value - mean) * (value - mean); });
        });
        block.sum<T::kTeam>(squares);
        block.each_alone([&](int thread) {
            const std::int64_t row = first + T::team(thread);
            if (row >= rows) return;
            const float mean = means[thread] * share, root = reciprocal_root(squares[thread], columns, epsilon);
            T::each_pack(thread, columns, [&](int pack, int column) {
                const auto values = held[thread].decode(x, row * columns, pack, column);
                out.store_pack(row * columns + column,
                               layer_normed<P>(values, mean, root, weight.load_pack(column), bias.load_pack(column)));
            });
            if (thread % T::kTeam != 0) return;
            moments[2 * row] = mean;
            moments[2 * row + 1] = root;
        });
    }

  private:
    template <class Term>
    __device__ float add_up(std::int64_t row, int thread, const Row<P, T>& held, const Term& term) const {
        float sum = 0.0F;
        if (row >= rows) return sum;
        T::each_pack(thread, columns, [&](int pack, int column) {
            const auto values = held.decode(x, row * columns, pack, column);
            ATOLL_UNROLL
            for (const float value : values.at) sum += term(value);
        });
        return sum;
    }
};

template <class P>
struct LayerNormApply {
    P x, weight, bias, out;
    const float* moments;
    std::int64_t columns;
    __device__ void operator()(std::int64_t row, std::int64_t column) const {
        const std::int64_t at = row * columns + column;
        const auto of_x = x.fetch(at), of_weight = weight.fetch(column), of_bias = bias.fetch(column);
        out.store_pack(at, layer_normed<P>(x.decode(of_x), moments[2 * row], moments[2 * row + 1],
                                           weight.decode(of_weight), bias.decode(of_bias)));
    }
};

// With n = (x − m)·r, y = n·w + b, g = w·dy:  dx = r·(g − mean(g) − n·mean(g·n)),  dw = Σ_rows dy·n,  db = Σ_rows dy.
template <class P, class T>
struct LayerNormBackward {
    P x, weight, out_gradient, residual_gradient, x_gradient;
    const float* moments;
    std::int64_t rows;
    int columns;
    Partials partials;  // of dw, then of db, a row a block

    __device__ void operator()(const Block& block) const {
        PerThread<ColumnSums<T>> of_weight, of_bias;
        block.each_alone([&](int thread) { of_weight[thread] = of_bias[thread] = {}; });
        const std::int64_t step = partials.count * T::kCount;
        for (std::int64_t first = block.number() * T::kCount; first < rows; first += step)
            do_rows(block, first, of_weight, of_bias);
        if constexpr (T::kHeld > 0) {
            float* const to = partials.row(block.number());
            write_column_sums<T>(block, of_weight, columns, to);
            write_column_sums<T>(block, of_bias, columns, to + columns);
        }
    }

  private:
    // Σ g and Σ g·n of a row.
    struct Dots {
        float g, gn;
    };

    __device__ void do_rows(const Block& block, std::int64_t first, PerThread<ColumnSums<T>>& of_weight,
                            PerThread<ColumnSums<T>>& of_bias) const {
        PerThread<Row<P, T>> of_x, of_out, of_residual;
        PerThread<Dots> dots;
        block.each_alone([&](int thread) {
            const std::int64_t row = first + T::team(thread);
            dots[thread] = {};
            if (row >= rows) return;
            of_x[thread].fetch(x, row * columns, thread, columns);
            of_out[thread].fetch(out_gradient, row * columns, thread, columns);
            if (!residual_gradient.empty())
                of_residual[thread].fetch(residual_gradient, row * columns, thread, columns);
            T::each_pack(thread, columns, [&](int pack, int column) {
                const auto n = standardised<P>(of_x[thread].decode(x, row * columns, pack, column), moments[2 * row],
                                               moments[2 * row + 1]);
                const auto dy = of_out[thread].decode(out_gradient, row * columns, pack, column);
                const auto w = weight.load_pack(column);
                ATOLL_UNROLL
                for (int i = 0; i < P::kWidth; ++i) {
                    dots[thread].g += dy.at[i] * w.at[i];
                    dots[thread].gn += dy.at[i] * w.at[i] * n.at[i];
                    if constexpr (T::kHeld > 0) {
                        of_weight[thread].at[pack * P::kWidth + i] += dy.at[i] * n.at[i];
                        of_bias[thread].at[pack * P::kWidth + i] += dy.at[i];
                    }
                }
            });
        });
        block.combine<T::kTeam>(dots, [](const Dots& a, const Dots& b) { return Dots{a.g + b.g, a.gn + b.gn}; });
        block.each_alone([&](int thread) {
            const std::int64_t row = first + T::team(thread);
            if (row >= rows) return;
            const float share = 1.0F / static_cast<float>(columns), r = moments[2 * row + 1];
            const float mean_g = dots[thread].g * share, mean_gn = dots[thread].gn * share;
            T::each_pack(thread, columns, [&](int pack, int column) {
                const auto n =
                    standardised<P>(of_x[thread].decode(x, row * columns, pack, column), moments[2 * row], r);
                auto gradient = of_out[thread].decode(out_gradient, row * columns, pack, column);
                const auto w = weight.load_pack(column);
                ATOLL_UNROLL
                for (int i = 0; i < P::kWidth; ++i)
                    gradient.at[i] = r * (gradient.at[i] * w.at[i] - mean_g - n.at[i] * mean_gn);
                if (!residual_gradient.empty())
                    add_to(gradient, of_residual[thread].decode(residual_gradient, row * columns, pack, column));
                x_gradient.store_pack(row * columns + column, gradient);
            });
        });
    }
};

// dw or db alone, of rows that no team holds.
template <class P>
struct LayerNormTerm {
    P x, out_gradient;
    const float* moments;
    std::int64_t columns;
    bool of_bias;
    __device__ typename P::Decoded operator()(std::int64_t row, int column) const {
        const std::int64_t at = row * columns + column;
        auto term = out_gradient.load_pack(at);
        if (of_bias) return term;
        const auto n = standardised<P>(x.load_pack(at), moments[2 * row], moments[2 * row + 1]);
        ATOLL_UNROLL
        for (int i = 0; i < P::kWidth; ++i) term.at[i] *= n.at[i];
        return term;
    }
};

void check_like(const Tensor& x, std::initializer_list<Tensor> others) {
    check_matrix(x, x.rows(), x.columns());
    for (const Tensor& other : others) {
        if (!other.empty()) check_matrix(other, x.rows(), x.columns());
    }
}

void check_vectors(const Tensor& x, std::initializer_list<Tensor> vectors) {
    for (const Tensor& vector : vectors) {
        if (!vector.empty()) check_count(vector, x.columns());
    }
}

// Without a delta, kept is x.
void launch_rmsnorm(cudaStream_t stream, const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                    const Tensor& kept, const Tensor& out, const Tensor& rstd) {
    check_like(x, {delta, kept, out});
    check_vectors(x, {weight});
    check_count(rstd, x.rows());
    with_packs(x.columns(), {x, delta, weight, kept, out}, [&]<class P>() {
        with_teams<P>(x.columns(), [&]<class T>() {
            launch(stream, (x.rows() + T::kCount - 1) / T::kCount,
                   RmsNormForward<P, T>{P(x), P(delta), P(weight), P(kept), P(out), rstd.f32(), x.rows(),
                                        static_cast<int>(x.columns()), epsilon});
        });
    });
}

}  // namespace

void GpuBackend::rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& out,
                                 const Tensor& rstd) {
    launch_rmsnorm(compute(), x, {}, weight, epsilon, x, out, rstd);
}

void GpuBackend::add_rmsnorm_forward(const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                                     const Tensor& sum, const Tensor& out, const Tensor& rstd) {
    launch_rmsnorm(compute(), x, delta, weight, epsilon, sum, out, rstd);
}

void GpuBackend::rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out) {
    check_like(x, {out});
    check_vectors(x, {weight});
    check_count(rstd, x.rows());
    with_packs(x.columns(), {x, weight, out}, [&]<class P>() {
        launch_in_rows<P>(compute(), x.rows(), x.columns(),
                          RmsNormApply<P>{P(x), P(weight), P(out), rstd.f32(), x.columns()});
    });
}

void GpuBackend::rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                                  const Tensor& residual_gradient, const Tensor& x_gradient,
                                  const Tensor& weight_gradient, bool accumulate) {
    check_like(x, {out_gradient, residual_gradient, x_gradient});
    check_vectors(x, {weight, weight_gradient});
    check_count(rstd, x.rows());
    with_packs(x.columns(), {x, weight, out_gradient, residual_gradient, x_gradient}, [&]<class P>() {
        with_teams<P>(x.columns(), [&]<class T>() {
            const bool is_held = T::kHeld > 0, sums = !weight_gradient.empty();
            if (sums && !is_held) {  // first, as the gradient of x may lie where that of the result does
                launch_add_up_rows<P>(compute(), RmsNormWeightTerm<P>{P(x), P(out_gradient), rstd.f32(), x.columns()},
                                      x.rows(), scratch_, weight_gradient, accumulate);
            }
            const Partials partials = partials_in(scratch_, x.columns(), (x.rows() + T::kCount - 1) / T::kCount);
            launch(compute(), partials.count,
                   RmsNormBackward<P, T>{P(x), P(weight), P(out_gradient), P(residual_gradient), P(x_gradient),
                                         rstd.f32(), x.rows(), static_cast<int>(x.columns()), partials});
            if (sums && is_held) launch_sum_partials(compute(), partials, 0, weight_gradient, accumulate);
        });
    });
}

void GpuBackend::layernorm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, float epsilon,
                                   const Tensor& out, const Tensor& moments) {
    check_like(x, {out});
    check_vectors(x, {weight, bias});
    check_count(moments, 2 * x.rows());
    with_packs(x.columns(), {x, weight, bias, out}, [&]<class P>() {
        with_teams<P>(x.columns(), [&]<class T>() {
            launch(compute(), (x.rows() + T::kCount - 1) / T::kCount,
                   LayerNormForward<P, T>{P(x), P(weight), P(bias), P(out), moments.f32(), x.rows(),
                                          static_cast<int>(x.columns()), epsilon});
        });
    });
}

void GpuBackend::layernorm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& moments,
                                 const Tensor& out) {
    check_like(x, {out});
    check_vectors(x, {weight, bias});
    check_count(moments, 2 * x.rows());
    with_packs(x.columns(), {x, weight, bias, out}, [&]<class P>() {
        launch_in_rows<P>(compute(), x.rows(), x.columns(),
                          LayerNormApply<P>{P(x), P(weight), P(bias), P(out), moments.f32(), x.columns()});
    });
}

void GpuBackend::layernorm_backward(const Tensor& x, const Tensor& weight, const Tensor& moments,
                                    const Tensor& out_gradient, const Tensor& residual_gradient,
                                    const Tensor& x_gradient, const Tensor& weight_gradient,
                                    const Tensor& bias_gradient, bool accumulate) {
    check_like(x, {out_gradient, residual_gradient, x_gradient});
    check_vectors(x, {weight, weight_gradient, bias_gradient});
    check_count(moments, 2 * x.rows());
    with_packs(x.columns(), {x, weight, out_gradient, residual_gradient, x_gradient}, [&]<class P>() {
        with_teams<P>(x.columns(), [&]<class T>() {
            Partials partials = partials_in(scratch_, 2 * x.columns(), (x.rows() + T::kCount - 1) / T::kCount);
            // Those that no team holds are added up first, as the gradient of x may lie where that of the result does.
            const auto add_up = [&](const Tensor& gradient, bool of_bias, bool is_held) {
                if (gradient.empty() || is_held != (T::kHeld > 0)) return;
                if (is_held) {
                    launch_sum_partials(compute(), partials, of_bias ? x.columns() : 0, gradient, accumulate);
                } else {
                    launch_add_up_rows<P>(compute(),
                                          LayerNormTerm<P>{P(x), P(out_gradient), moments.f32(), x.columns(), of_bias},
                                          x.rows(), scratch_, gradient, accumulate);
                }
            };
            add_up(weight_gradient, false, false);
            add_up(bias_gradient, true, false);
            launch(compute(), partials.count,
                   LayerNormBackward<P, T>{P(x), P(weight), P(out_gradient), P(residual_gradient), P(x_gradient),
                                           moments.f32(), x.rows(), static_cast<int>(x.columns()), partials});
            add_up(weight_gradient, false, true);
            add_up(bias_gradient, true, true);
        });
    });
}

}  // namespace atl::kernels::gpu
