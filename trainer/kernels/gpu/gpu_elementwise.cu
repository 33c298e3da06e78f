// What GpuBackend does element by element, sums, and products with what they have to convert.

#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/rows.h"
#include "trainer/kernels/operands.h"
#include "trainer/tensor/philox.h"

namespace atl::kernels::gpu {
namespace {

using tensor::DType;

template <class P>
struct Add {
    P a, b, out;
    __device__ void operator()(std::int64_t i) const {
        const auto of_a = a.fetch(i), of_b = b.fetch(i);
        auto values = a.decode(of_a);
        add_to(values, b.decode(of_b));
        out.store_pack(i, values);
    }
};

template <class P>
struct Scale {
    P x;
    float factor;
    __device__ void operator()(std::int64_t i) const {
        auto values = x.load_pack(i);
        ATOLL_UNROLL
        for (float& value : values.at) value *= factor;
        x.store_pack(i, values);
    }
};

template <class P>
struct DivideByNorm {
    P x;
    const double* squares;
    float norm_min;
    __device__ void operator()(std::int64_t i) const {
        const float factor = static_cast<float>(1.0 / fmax(sqrt(*squares), static_cast<double>(norm_min)));
        auto values = x.load_pack(i);
        ATOLL_UNROLL
        for (float& value : values.at) value *= factor;
        x.store_pack(i, values);
    }
};

template <class P>
struct Convert {
    P from, to;
    __device__ void operator()(std::int64_t i) const { to.store_pack(i, from.load_pack(i)); }
};

template <class P>
struct AddBias {
    P x, bias, residual, out;
    std::int64_t columns;
    __device__ void operator()(std::int64_t row, std::int64_t column) const {
        const std::int64_t at = row * columns + column;
        const auto of_x = x.fetch(at), of_bias = bias.fetch(column);
        auto values = x.decode(of_x);
        if (residual.empty()) {
            add_to(values, bias.decode(of_bias));
        } else {
            const auto of_residual = residual.fetch(at);
            add_to(values, bias.decode(of_bias));
            add_to(values, residual.decode(of_residual));
        }
        out.store_pack(at, values);
    }
};

template <class P>
struct BiasRelu {
    P x, bias;
    std::int64_t columns;
    __device__ void operator()(std::int64_t row, std::int64_t column) const {
        const std::int64_t at = row * columns + column;
        const auto of_x = x.fetch(at), of_bias = bias.fetch(column);
        auto values = x.decode(of_x);
        add_to(values, bias.decode(of_bias));
        ATOLL_UNROLL
        for (float& value : values.at) value = value <= 0.0F ? 0.0F : value;  // NaN stays
        x.store_pack(at, values);
    }
};

template <class P>
struct ReluBackward {
    P out, gradient;
    __device__ void operator()(std::int64_t i) const {
        const auto of_out = out.fetch(i), of_gradient = gradient.fetch(i);
        const auto result = out.decode(of_out);
        auto values = gradient.decode(of_gradient);
        ATOLL_UNROLL
        for (int k = 0; k < P::kWidth; ++k) values.at[k] = result.at[k] > 0.0F ? values.at[k] : 0.0F;
        gradient.store_pack(i, values);
    }
};

template <class P>
struct RowTerm {
    P x;
    std::int64_t columns;
    __device__ typename P::Decoded operator()(std::int64_t row, int column) const {
        return x.load_pack(row * columns + column);
    }
};

__device__ float sigmoid(float x) {
    return 1.0F / (1.0F + expf(-x));
}

template <class P>
struct SwigluForward {
    P gate_up, out;
    std::int64_t columns;
    __device__ void operator()(std::int64_t row, std::int64_t column) const {
        const std::int64_t at = row * 2 * columns + column;
        const auto of_gate = gate_up.fetch(at), of_up = gate_up.fetch(at + columns);
        const auto gate = gate_up.decode(of_gate);
        auto values = gate_up.decode(of_up);
        ATOLL_UNROLL
        for (int k = 0; k < P::kWidth; ++k) values.at[k] = gate.at[k] * sigmoid(gate.at[k]) * values.at[k];
        out.store_pack(row * columns + column, values);
    }
};

// silu'(g) = s·(1 + g·(1 − s)) with s = sigmoid(g).
template <class P>
struct SwigluBackward {
    P gate_up, out_gradient, gate_up_gradient, out;
    std::int64_t columns;
    __device__ void operator()(std::int64_t row, std::int64_t column) const {
        const std::int64_t at = row * 2 * columns + column, at_out = row * columns + column;
        const auto of_gate = gate_up.fetch(at), of_up = gate_up.fetch(at + columns);
        const auto of_out = out_gradient.fetch(at_out);
        auto gate = gate_up.decode(of_gate), up = gate_up.decode(of_up);
        auto values = out_gradient.decode(of_out);
        ATOLL_UNROLL
        for (int k = 0; k < P::kWidth; ++k) {
            const float g = gate.at[k], u = up.at[k], gradient = values.at[k], s = sigmoid(g), silu = g * s;
            gate.at[k] = gradient * u * (s + silu * (1.0F - s));
            up.at[k] = gradient * silu;
            values.at[k] = silu * u;
        }
        gate_up_gradient.store_pack(at, gate);
        gate_up_gradient.store_pack(at + columns, up);
        out.store_pack(at_out, values);
    }
};

// Element e's draw is word e % 4 of block e / 4; packs begin at whole blocks.
template <class P>
struct Drop {
    P x, out;
    std::uint64_t below;  // of 2³²: what is drawn below is dropped
    float factor;
    std::uint64_t seed, stream;
    std::int64_t first_element;
    __device__ void operator()(std::int64_t i) const {
        auto values = x.load_pack(i);
        const std::int64_t element = first_element + i;
        ATOLL_UNROLL
        for (int k = 0; k < P::kWidth; k += 4) {
            std::uint32_t words[4];
            tensor::philox(static_cast<std::uint64_t>((element + k) / 4), stream, seed, words);
            ATOLL_UNROLL
            for (int word = 0; word < 4; ++word) {
                if (P::kWidth > 1 || element % 4 == word) drop(values.at[P::kWidth > 1 ? k + word : 0], words[word]);
            }
        }
        out.store_pack(i, values);
    }

  private:
    __device__ void drop(float& value, std::uint32_t drawn) const { value = drawn < below ? 0.0F : value * factor; }
};

// Pieces are added as they come: what two neighbours of equal size have given is one sum, so that the order is that of
// the tree.
struct SumPieces {
    Elements pieces;
    float* sum;
    std::int64_t piece_count, count;
    __device__ void operator()(std::int64_t i) const {
        float pending[32];  // the sums of 2^k pieces that wait for their neighbour
        int waiting = 0;
        for (std::int64_t piece = 0; piece < piece_count; ++piece) {
            float value = pieces.load(piece * count + i);
            for (std::int64_t ended = piece + 1; ended % 2 == 0; ended /= 2) value = pending[--waiting] + value;
            pending[waiting++] = value;
        }
        while (waiting > 1) {
            pending[waiting - 2] += pending[waiting - 1];
            --waiting;
        }
        sum[i] = pending[0];
    }
};

struct Sum {
    Elements x;
    __device__ double operator()(std::int64_t i) const { return static_cast<double>(x.load(i)); }
};

// into[block] = the sum of the block's share of the terms, and what was there before.
template <class Term>
struct PartialSums {
    Term term;
    std::int64_t count, share;
    double* into;
    bool accumulate;
    __device__ void operator()(const Block& block) const {
        const std::int64_t begin = block.number() * share, left = count - begin;
        const double sum = block.reduce(
            left < share ? left : share, 0.0, [&](std::int64_t i) { return term(begin + i); },
            [](double a, double b) { return a + b; });
        block.once([&] { into[block.number()] = accumulate ? into[block.number()] + sum : sum; });
    }
};

struct OfDoubles {
    const double* values;
    __device__ double operator()(std::int64_t i) const { return values[i]; }
};

// A strided matrix into a dense one, and back with what a product gave added or in place of it.
struct Gather {
    Elements from, to;
    std::int64_t columns, stride;
    __device__ void operator()(std::int64_t i) const { to.store(i, from.load(i / columns * stride + i % columns)); }
};

struct Scatter {
    Elements from, to;
    std::int64_t columns, stride;
    bool accumulate;
    __device__ void operator()(std::int64_t i) const {
        const std::int64_t at = i / columns * stride + i % columns;
        const float value = from.empty() ? 0.0F : from.load(i);
        to.store(at, accumulate ? to.load(at) + value : value);
    }
};

// The library multiplies what is of one format, into that or fp32.
bool is_result(const Tensor& c, const Tensor& a) {
    return c.dtype() == a.dtype() || c.dtype() == DType::kF32;
}

// Of how many columns a dense copy of op(b) [k, columns] and one of c [m, columns] fit in so many bytes, whatever their
// formats: some thousands of rows leave room for hundreds.
std::int64_t columns_in(std::int64_t bytes, std::int64_t m, std::int64_t k) {
    constexpr std::int64_t kElementBytes = 4, kStep = 64;  // whole tiles of the library's kernels
    const std::int64_t columns = (bytes - tensor::kAlignmentBytes) / (kElementBytes * (m + k));
    check(columns > 0, "a product's matrices are too long to be converted");
    return columns < kStep ? columns : columns / kStep * kStep;
}

}  // namespace

void GpuBackend::add(const Tensor& a, const Tensor& b, const Tensor& out) {
    check_count(a, out.element_count());
    check_count(b, out.element_count());
    check_count(out, out.element_count());
    with_flat_packs(out.element_count(), {a, b, out}, [&]<class P>(std::int64_t first, std::int64_t end) {
        launch_packs<P>(compute(), first, end, Add<P>{P(a), P(b), P(out)});
    });
}

void GpuBackend::scale(const Tensor& x, float factor) {
    check_count(x, x.element_count());
    with_flat_packs(x.element_count(), {x}, [&]<class P>(std::int64_t first, std::int64_t end) {
        launch_packs<P>(compute(), first, end, Scale<P>{P(x), factor});
    });
}

void GpuBackend::divide_by_norm(const Tensor& x, const Tensor& squares, float norm_min) {
    check_count(x, x.element_count());
    with_flat_packs(x.element_count(), {x}, [&]<class P>(std::int64_t first, std::int64_t end) {
        launch_packs<P>(compute(), first, end, DivideByNorm<P>{P(x), squares.f64(), norm_min});
    });
}

void GpuBackend::convert(const Tensor& from, const Tensor& to) {
    check_count(from, to.element_count());
    check_count(to, from.element_count());
    with_flat_packs(to.element_count(), {from, to}, [&]<class P>(std::int64_t first, std::int64_t end) {
        launch_packs<P>(compute(), first, end, Convert<P>{P(from), P(to)});
    });
}

void GpuBackend::add_bias(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& out) {
    const std::int64_t columns = x.columns();
    check_count(bias, columns);
    check_count(out, x.element_count());
    if (!residual.empty()) check_count(residual, x.element_count());
    with_packs(columns, {x, bias, residual, out}, [&]<class P>() {
        launch_in_rows<P>(compute(), x.rows(), columns, AddBias<P>{P(x), P(bias), P(residual), P(out), columns});
    });
}

void GpuBackend::bias_relu(const Tensor& x, const Tensor& bias) {
    check_count(bias, x.columns());
    with_packs(x.columns(), {x, bias}, [&]<class P>() {
        launch_in_rows<P>(compute(), x.rows(), x.columns(), BiasRelu<P>{P(x), P(bias), x.columns()});
    });
}

void GpuBackend::relu_backward(const Tensor& out, const Tensor& gradient) {
    check_count(gradient, out.element_count());
    with_flat_packs(out.element_count(), {out, gradient}, [&]<class P>(std::int64_t first, std::int64_t end) {
        launch_packs<P>(compute(), first, end, ReluBackward<P>{P(out), P(gradient)});
    });
}

void GpuBackend::sum_rows(const Tensor& x, const Tensor& out, bool accumulate) {
    check_count(out, x.columns());
    with_packs(x.columns(), {x}, [&]<class P>() {
        launch_add_up_rows<P>(compute(), RowTerm<P>{P(x), x.columns()}, x.rows(), scratch_, out, accumulate);
    });
}

void GpuBackend::swiglu_forward(const Tensor& gate_up, const Tensor& out) {
    check_matrix(gate_up, out.rows(), 2 * out.columns());
    with_packs(out.columns(), {gate_up, out}, [&]<class P>() {
        launch_in_rows<P>(compute(), out.rows(), out.columns(), SwigluForward<P>{P(gate_up), P(out), out.columns()});
    });
}

void GpuBackend::swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                                 const Tensor& out) {
    check_matrix(gate_up, out.rows(), 2 * out.columns());
    check_matrix(gate_up_gradient, out.rows(), 2 * out.columns());
    check_matrix(out_gradient, out.rows(), out.columns());
    with_packs(out.columns(), {gate_up, out_gradient, gate_up_gradient, out}, [&]<class P>() {
        launch_in_rows<P>(compute(), out.rows(), out.columns(),
                          SwigluBackward<P>{P(gate_up), P(out_gradient), P(gate_up_gradient), P(out), out.columns()});
    });
}

void GpuBackend::dropout(const Dropout& dropout, const Tensor& x, const Tensor& out) {
    check_count(out, x.element_count());
    const auto below = static_cast<std::uint64_t>(std::llround(dropout.probability * 0x1p32));
    const float factor = static_cast<float>(1.0 / (1.0 - dropout.probability));
    const auto drop = [&]<class P>(std::int64_t first, std::int64_t end) {
        launch_packs<P>(compute(), first, end,
                        Drop<P>{P(x), P(out), below, factor, dropout.seed, dropout.stream, dropout.first_element});
    };
    if (dropout.first_element % 4 == 0) {
        with_flat_packs(x.element_count(), {x, out}, drop);
    } else {
        drop.template operator()<Packs<Format::kAny, 1>>(0, x.element_count());
    }
}

void GpuBackend::sum_pieces(const Tensor& pieces, const Tensor& sum) {
    const std::int64_t count = sum.element_count();
    check(count > 0 && pieces.element_count() % count == 0, "sum_pieces takes pieces of equal length");
    launch_for_each(compute(), count, SumPieces{Elements(pieces), sum.f32(), pieces.element_count() / count, count});
}

template <class Term>
void GpuBackend::add_up(std::int64_t count, const Term& term, const Tensor& into, bool accumulate) {
    auto* const partial = reinterpret_cast<double*>(sums_.data());
    const std::int64_t share = count / kSumBlocks + 1;
    launch(compute(), kSumBlocks, PartialSums<Term>{term, count, share, partial, false});
    launch(compute(), 1, PartialSums<OfDoubles>{{partial}, kSumBlocks, kSumBlocks, into.f64(), accumulate});
}

void GpuBackend::sum(const Tensor& x, const Tensor& into, bool accumulate) {
    check_count(x, x.element_count());
    add_up(x.element_count(), Sum{Elements(x)}, into, accumulate);
}

// Columns of op(b) or of c, which are rows of b where it is transposed.
void GpuBackend::multiply_converted(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
                                    const Tensor& c, bool accumulate) {
    const std::int64_t m = c.rows(), n = c.columns(), k = transpose_b ? b.columns() : b.rows();
    const std::int64_t columns_max = columns_in(scratch_.size_bytes(), m, k);
    for (std::int64_t first = 0; first < n; first += columns_max) {
        const std::int64_t columns = std::min(columns_max, n - first);
        Tensor operand = transpose_b ? b.row_range(first, columns) : b.column_range(first, columns);
        const Tensor part = c.column_range(first, columns);
        std::byte* place = scratch_.data();
        if (operand.dtype() != a.dtype()) {
            const Tensor dense(place, a.dtype(), {operand.rows(), operand.columns()});
            launch_for_each(compute(), operand.element_count(),
                            Gather{Elements(operand), Elements(dense), operand.columns(), operand.row_stride()});
            place += tensor::aligned(dense.byte_count());
            operand = dense;
        }
        if (is_result(c, a)) {
            products_->multiply(compute(), a, transpose_a, operand, transpose_b, part, {.accumulate = accumulate});
            continue;
        }
        const Tensor product(place, DType::kF32, {m, columns});
        products_->multiply(compute(), a, transpose_a, operand, transpose_b, product, {});
        launch_for_each(compute(), m * columns,
                        Scatter{Elements(product), Elements(part), columns, part.row_stride(), accumulate});
    }
}

void GpuBackend::matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                        bool accumulate) {
    const auto [m, n, k] = matmul_shape(a, transpose_a, b, transpose_b, c);
    check(!tensor::is_quantized(b.dtype()), "the GPU multiplies dequantised matrices");
    if (m == 0 || n == 0) return;
    if (k == 0) {
        if (!accumulate)
            launch_for_each(compute(), m * n, Scatter{Elements(Tensor()), Elements(c), n, c.row_stride(), false});
        return;
    }
    if (b.dtype() == a.dtype() && is_result(c, a)) {
        products_->multiply(compute(), a, transpose_a, b, transpose_b, c, {.accumulate = accumulate});
    } else {
        multiply_converted(a, transpose_a, b, transpose_b, c, accumulate);
    }
}

// At once where the library takes all of it.
void GpuBackend::matmul_with(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& d,
                             const Epilogue& epilogue) {
    const auto [m, n, k] = matmul_shape(a, transpose_a, b, transpose_b, d);
    const auto& [bias, addend] = epilogue;
    if (!bias.empty()) check_count(bias, n);
    if (!addend.empty()) check_matrix(addend, m, n);
    const Products::Terms terms{.bias = bias, .addend = addend};
    const auto fits = [&](const Tensor& term) { return term.empty() || term.dtype() == d.dtype(); };
    if (m > 0 && n > 0 && k > 0 && b.dtype() == a.dtype() && is_result(d, a) && fits(bias) && fits(addend) &&
        products_->offers(a, transpose_a, b, transpose_b, d, terms)) {
        products_->multiply(compute(), a, transpose_a, b, transpose_b, d, terms);
    } else {
        Backend::matmul_with(a, transpose_a, b, transpose_b, d, epilogue);
    }
}

}  // namespace atl::kernels::gpu
