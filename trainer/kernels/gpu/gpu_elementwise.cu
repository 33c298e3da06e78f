// What GpuBackend does element by element, sums, and products with what they have to convert.

#include "trainer/kernels/gpu/elements.h"
#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/launch.h"
#include "trainer/kernels/operands.h"
#include "trainer/tensor/philox.h"

namespace atl::kernels::gpu {
namespace {

using tensor::DType;

struct Add {
    Elements a, b, out;
    __device__ void operator()(std::int64_t i) const { out.store(i, a.load(i) + b.load(i)); }
};

struct Scale {
    Elements x;
    float factor;
    __device__ void operator()(std::int64_t i) const { x.store(i, x.load(i) * factor); }
};

struct Convert {
    Elements from, to;
    __device__ void operator()(std::int64_t i) const { to.store(i, from.load(i)); }
};

struct AddBias {
    Elements x, bias, residual, out;
    std::int64_t columns;
    __device__ void operator()(std::int64_t i) const {
        const float sum = x.load(i) + bias.load(i % columns);
        out.store(i, residual.empty() ? sum : sum + residual.load(i));
    }
};

struct BiasRelu {
    Elements x, bias;
    std::int64_t columns;
    __device__ void operator()(std::int64_t i) const {
        const float sum = x.load(i) + bias.load(i % columns);
        x.store(i, sum <= 0.0F ? 0.0F : sum);  // NaN stays
    }
};

struct ReluBackward {
    Elements out, gradient;
    __device__ void operator()(std::int64_t i) const {
        if (!(out.load(i) > 0.0F)) gradient.store(i, 0.0F);
    }
};

// A column each.
struct SumRows {
    Elements x, out;
    std::int64_t rows, columns;
    bool accumulate;
    __device__ void operator()(std::int64_t c) const {
        const float sum = sum_in_runs(rows, [&](std::int64_t row) { return x.load(row * columns + c); });
        out.store(c, accumulate ? out.load(c) + sum : sum);
    }
};

__device__ float sigmoid(float x) {
    return 1.0F / (1.0F + expf(-x));
}

struct SwigluForward {
    Elements gate_up, out;
    std::int64_t columns;
    __device__ void operator()(std::int64_t i) const {
        const std::int64_t at = i / columns * 2 * columns + i % columns;
        const float gate = gate_up.load(at);
        out.store(i, gate * sigmoid(gate) * gate_up.load(at + columns));
    }
};

// silu'(g) = s·(1 + g·(1 − s)) with s = sigmoid(g).
struct SwigluBackward {
    Elements gate_up, out_gradient, gate_up_gradient, out;
    std::int64_t columns;
    __device__ void operator()(std::int64_t i) const {
        const std::int64_t at = i / columns * 2 * columns + i % columns;
        const float gate = gate_up.load(at), up = gate_up.load(at + columns), gradient = out_gradient.load(i);
        const float s = sigmoid(gate), silu = gate * s;
        gate_up_gradient.store(at, gradient * up * (s + silu * (1.0F - s)));
        gate_up_gradient.store(at + columns, gradient * silu);
        out.store(i, silu * up);
    }
};

// Element e's draw is word e % 4 of block e / 4.
struct Drop {
    Elements x, out;
    std::uint64_t below;  // of 2³²: what is drawn below is dropped
    float factor;
    std::uint64_t seed, stream;
    std::int64_t first_element;
    __device__ void operator()(std::int64_t i) const {
        const std::int64_t element = first_element + i;
        std::uint32_t words[4];
        tensor::philox(static_cast<std::uint64_t>(element / 4), stream, seed, words);
        out.store(i, words[element % 4] < below ? 0.0F : x.load(i) * factor);
    }
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

struct SumOfSquares {
    Elements x;
    __device__ double operator()(std::int64_t i) const {
        const double value = static_cast<double>(x.load(i));
        return value * value;
    }
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
    launch_for_each(compute(), out.element_count(), Add{Elements(a), Elements(b), Elements(out)});
}

void GpuBackend::scale(const Tensor& x, float factor) {
    check_count(x, x.element_count());
    launch_for_each(compute(), x.element_count(), Scale{Elements(x), factor});
}

void GpuBackend::convert(const Tensor& from, const Tensor& to) {
    check_count(from, to.element_count());
    check_count(to, from.element_count());
    launch_for_each(compute(), to.element_count(), Convert{Elements(from), Elements(to)});
}

void GpuBackend::add_bias(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& out) {
    const std::int64_t columns = x.columns();
    check_count(bias, columns);
    check_count(out, x.element_count());
    if (!residual.empty()) check_count(residual, x.element_count());
    launch_for_each(compute(), x.element_count(),
                    AddBias{Elements(x), Elements(bias), Elements(residual), Elements(out), columns});
}

void GpuBackend::bias_relu(const Tensor& x, const Tensor& bias) {
    check_count(bias, x.columns());
    launch_for_each(compute(), x.element_count(), BiasRelu{Elements(x), Elements(bias), x.columns()});
}

void GpuBackend::relu_backward(const Tensor& out, const Tensor& gradient) {
    check_count(gradient, out.element_count());
    launch_for_each(compute(), out.element_count(), ReluBackward{Elements(out), Elements(gradient)});
}

void GpuBackend::sum_rows(const Tensor& x, const Tensor& out, bool accumulate) {
    check_count(out, x.columns());
    launch_for_each(compute(), x.columns(), SumRows{Elements(x), Elements(out), x.rows(), x.columns(), accumulate});
}

void GpuBackend::swiglu_forward(const Tensor& gate_up, const Tensor& out) {
    check_matrix(gate_up, out.rows(), 2 * out.columns());
    launch_for_each(compute(), out.element_count(), SwigluForward{Elements(gate_up), Elements(out), out.columns()});
}

void GpuBackend::swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                                 const Tensor& out) {
    check_matrix(gate_up, out.rows(), 2 * out.columns());
    check_matrix(gate_up_gradient, out.rows(), 2 * out.columns());
    check_matrix(out_gradient, out.rows(), out.columns());
    launch_for_each(compute(), out.element_count(),
                    SwigluBackward{Elements(gate_up), Elements(out_gradient), Elements(gate_up_gradient), Elements(out),
                                   out.columns()});
}

void GpuBackend::dropout(const Dropout& dropout, const Tensor& x, const Tensor& out) {
    check_count(out, x.element_count());
    const auto below = static_cast<std::uint64_t>(std::llround(dropout.probability * 0x1p32));
    const float factor = static_cast<float>(1.0 / (1.0 - dropout.probability));
    launch_for_each(
        compute(), x.element_count(),
        Drop{Elements(x), Elements(out), below, factor, dropout.seed, dropout.stream, dropout.first_element});
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

void GpuBackend::sum_of_squares(const Tensor& x, const Tensor& into, bool accumulate) {
    check_count(x, x.element_count());
    add_up(x.element_count(), SumOfSquares{Elements(x)}, into, accumulate);
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
    check(!tensor::is_quantized(b.dtype()), "products with quantised weights are not built for GPUs");
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
