// Kernels for widths of rows of all kinds against naive fp64 references, on every backend and in several formats: few
// and many columns, columns that vectors do not divide, single rows, and matrices that begin anywhere in memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"
#include "trainer/tensor/sort_by_id.h"

namespace atl::kernels {
namespace {

using tensor::DType;
using Doubles = std::vector<double>;

struct Width {
    std::int64_t rows, columns;
    std::int64_t first;  // how many elements before each matrix its memory begins
};

// The formats of what blocks hand on and of the weights.
struct Pair {
    const char* name;
    DType activations, residual, weights;
};

// A tensor of random values that its format holds.
class Given {
  public:
    Given(Backend& backend, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t first, unsigned seed)
        : backend_(backend), count_(rows * columns), wide_(random(backend, {rows * columns + first}, seed)) {
        memory_ = backend.allocate(tensor::size_bytes(dtype, count_ + first)).value();
        const Tensor all(memory_.data(), dtype, {count_ + first});
        backend.convert(wide_.tensor, all);
        tensor = Tensor(all.at(first), dtype, {rows, columns});
        values = read();
    }
    Doubles read() const {
        OnDevice<> wide(backend_, {count_});
        backend_.convert(Tensor(tensor.data(), tensor.dtype(), {count_}), wide.tensor);
        const std::vector<float> read = wide.read();
        return {read.begin(), read.end()};
    }
    Tensor vector() const { return tensor.reshape({count_}); }

    Tensor tensor;
    Doubles values;  // at the start

  private:
    Backend& backend_;
    std::int64_t count_;
    OnDevice<> wide_;
    tensor::Memory memory_;
};

class WidthTest : public ::testing::TestWithParam<std::tuple<std::string, Pair, Width>> {
  protected:
    static constexpr double kEpsilon = 1e-5;
    static constexpr auto kEpsilonF = static_cast<float>(kEpsilon);

    WidthTest() : formats_(std::get<1>(GetParam())), width_(std::get<2>(GetParam())) {}

    Given matrix(DType dtype, std::int64_t columns, unsigned seed) {
        return {*backend_, dtype, width_.rows, columns, width_.first, seed};
    }
    Given vector(DType dtype, unsigned seed) { return {*backend_, dtype, 1, width_.columns, width_.first, seed}; }
    Given activations(unsigned seed) { return matrix(formats_.activations, width_.columns, seed); }
    Given residual(unsigned seed) { return matrix(formats_.residual, width_.columns, seed); }
    Given weights(unsigned seed) { return vector(formats_.weights, seed); }

    // term(i, row, column) for each element of a matrix.
    template <class Term>
    Doubles each(const Term& term) const {
        Doubles values;
        for (std::int64_t i = 0; i < width_.rows * width_.columns; ++i)
            values.push_back(term(static_cast<std::size_t>(i), static_cast<std::size_t>(i / width_.columns),
                                  static_cast<std::size_t>(i % width_.columns)));
        return values;
    }
    template <class Term>
    Doubles add_up_rows(Doubles start, const Term& term) const {
        each([&](std::size_t i, std::size_t row, std::size_t column) {
            start[column] += term(i, row);
            return 0.0;
        });
        return start;
    }
    // mean over a row of term(i, column)
    template <class Term>
    Doubles mean_of_rows(const Term& term) const {
        Doubles means(static_cast<std::size_t>(width_.rows), 0.0);
        each([&](std::size_t i, std::size_t row, std::size_t column) {
            means[row] += term(i, column) / static_cast<double>(width_.columns);
            return 0.0;
        });
        return means;
    }
    // Of results that were rounded to their format once.
    static void expect_near(const Given& got, const Doubles& expected, const char* what) {
        const Doubles read = got.read();
        double difference = 0, size = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            difference += std::pow(read[i] - expected[i], 2);
            size += expected[i] * expected[i];
        }
        const DType dtype = got.tensor.dtype();
        const double step = dtype == DType::kF32 ? 2e-6 : dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
        EXPECT_LE(std::sqrt(difference / size), step) << what;
    }

    const Pair formats_;
    const Width width_;
    std::unique_ptr<Backend> backend_ = make_tested_backend(std::get<0>(GetParam()));
};

TEST_P(WidthTest, RmsNorms) {
    const Given x = residual(1), delta = activations(2), weight = weights(3), dy = activations(4), more = residual(5);
    const Given sum = residual(6), out = activations(7), again = activations(8), dx = residual(9);
    const Given dw = vector(DType::kF32, 10);
    OnDevice<> rstd(*backend_, {width_.rows});
    backend_->add_rmsnorm_forward(x.tensor, delta.tensor, weight.vector(), kEpsilonF, sum.tensor, out.tensor,
                                  rstd.tensor);
    const Doubles kept = sum.read();
    expect_near(sum, each([&](std::size_t i, auto, auto) { return x.values[i] + delta.values[i]; }), "the sum");
    Doubles root = mean_of_rows([&](std::size_t i, auto) { return kept[i] * kept[i]; });
    for (double& value : root) value = 1 / std::sqrt(value + kEpsilon);
    const Doubles expected = each([&](std::size_t i, std::size_t row, std::size_t column) {
        return kept[i] * root[row] * weight.values[column];
    });
    expect_near(out, expected, "the norm of a sum");
    EXPECT_LE(relative_l2(rstd, root), kOpTolerance);
    backend_->rmsnorm_forward(sum.tensor, weight.vector(), kEpsilonF, again.tensor, rstd.tensor);
    EXPECT_EQ(again.read(), out.read()) << "the norm of the sum as it is kept";
    backend_->rmsnorm_apply(sum.tensor, weight.vector(), rstd.tensor, out.tensor);
    EXPECT_EQ(again.read(), out.read()) << "from the statistics";

    backend_->rmsnorm_backward(sum.tensor, weight.vector(), rstd.tensor, dy.tensor, more.tensor, dx.tensor, dw.vector(),
                               true);
    const Doubles dot =
        mean_of_rows([&](std::size_t i, std::size_t column) { return dy.values[i] * weight.values[column] * kept[i]; });
    expect_near(dx, each([&](std::size_t i, std::size_t row, std::size_t column) {
                    return more.values[i] + root[row] * weight.values[column] * dy.values[i] -
                           kept[i] * std::pow(root[row], 3) * dot[row];
                }),
                "the gradient of x");
    expect_near(
        dw, add_up_rows(dw.values, [&](std::size_t i, std::size_t row) { return dy.values[i] * kept[i] * root[row]; }),
        "the gradient of the weight");
}

TEST_P(WidthTest, LayerNorms) {
    const Given x = residual(1), weight = weights(2), bias = weights(3), dy = activations(4), more = residual(5);
    const Given out = activations(6), again = activations(7), dx = residual(8);
    const Given dw = vector(DType::kF32, 9), db = vector(DType::kF32, 10);
    OnDevice<> moments(*backend_, {width_.rows, 2});
    backend_->layernorm_forward(x.tensor, weight.vector(), bias.vector(), kEpsilonF, out.tensor, moments.tensor);
    backend_->layernorm_apply(x.tensor, weight.vector(), bias.vector(), moments.tensor, again.tensor);
    const Doubles mean = mean_of_rows([&](std::size_t i, auto) { return x.values[i]; });
    Doubles centred = each([&](std::size_t i, std::size_t row, auto) { return x.values[i] - mean[row]; });
    Doubles root = mean_of_rows([&](std::size_t i, auto) { return centred[i] * centred[i]; });
    for (double& value : root) value = 1 / std::sqrt(value + kEpsilon);
    const Doubles n = each([&](std::size_t i, std::size_t row, auto) { return centred[i] * root[row]; });
    const Doubles expected = each(
        [&](std::size_t i, auto, std::size_t column) { return n[i] * weight.values[column] + bias.values[column]; });
    expect_near(out, expected, "the norm");
    expect_near(again, expected, "from the moments");

    backend_->layernorm_backward(x.tensor, weight.vector(), moments.tensor, dy.tensor, more.tensor, dx.tensor,
                                 dw.vector(), db.vector(), true);
    const auto g = [&](std::size_t i, std::size_t column) { return dy.values[i] * weight.values[column]; };
    const Doubles mean_g = mean_of_rows(g);
    const Doubles mean_gn = mean_of_rows([&](std::size_t i, std::size_t column) { return g(i, column) * n[i]; });
    expect_near(dx, each([&](std::size_t i, std::size_t row, std::size_t column) {
                    return more.values[i] + root[row] * (g(i, column) - mean_g[row] - n[i] * mean_gn[row]);
                }),
                "the gradient of x");
    expect_near(dw, add_up_rows(dw.values, [&](std::size_t i, auto) { return dy.values[i] * n[i]; }),
                "the gradient of the weight");
    expect_near(db, add_up_rows(db.values, [&](std::size_t i, auto) { return dy.values[i]; }),
                "the gradient of the bias");
}

TEST_P(WidthTest, SwigluAndBiases) {
    const Given gate_up = matrix(formats_.activations, 2 * width_.columns, 1), dy = activations(2);
    const Given out = activations(3), again = activations(4),
                gradient = matrix(formats_.activations, 2 * width_.columns, 5);
    backend_->swiglu_forward(gate_up.tensor, out.tensor);
    backend_->swiglu_backward(gate_up.tensor, dy.tensor, gradient.tensor, again.tensor);
    const auto columns = static_cast<std::size_t>(width_.columns);
    const auto gate = [&](std::size_t i) { return gate_up.values[i / columns * 2 * columns + i % columns]; };
    const auto up = [&](std::size_t i) { return gate_up.values[i / columns * 2 * columns + columns + i % columns]; };
    const auto sigmoid = [&](std::size_t i) { return 1 / (1 + std::exp(-gate(i))); };
    const Doubles expected = each([&](std::size_t i, auto, auto) { return gate(i) * sigmoid(i) * up(i); });
    expect_near(out, expected, "SwiGLU");
    expect_near(again, expected, "SwiGLU again");
    Doubles of_both;
    for (std::size_t row = 0; row < static_cast<std::size_t>(width_.rows); ++row) {
        for (std::size_t i = row * columns; i < (row + 1) * columns; ++i)
            of_both.push_back(dy.values[i] * up(i) * sigmoid(i) * (1 + gate(i) * (1 - sigmoid(i))));
        for (std::size_t i = row * columns; i < (row + 1) * columns; ++i)
            of_both.push_back(dy.values[i] * gate(i) * sigmoid(i));
    }
    expect_near(gradient, of_both, "the gradient of gate and up");

    const Given bias = weights(6), more = residual(7), sum = residual(8), sums = vector(DType::kF32, 9);
    backend_->add_bias(dy.tensor, bias.vector(), more.tensor, sum.tensor);
    expect_near(sum, each([&](std::size_t i, auto, std::size_t column) {
                    return dy.values[i] + bias.values[column] + more.values[i];
                }),
                "a bias and a residual");
    backend_->sum_rows(dy.tensor, sums.vector(), true);
    expect_near(sums, add_up_rows(sums.values, [&](std::size_t i, auto) { return dy.values[i]; }), "the sum of rows");
}

TEST_P(WidthTest, CrossEntropy) {
    const Given logits = activations(1);
    std::vector<std::int32_t> labels;
    for (std::int64_t row = 0; row < width_.rows; ++row)
        labels.push_back(row % 5 == 3 ? kIgnoredLabel : static_cast<std::int32_t>((row + 1) * 7919 % width_.columns));
    const OnDevice<std::int32_t> targets = integers(*backend_, labels);
    OnDevice<> losses(*backend_, {width_.rows}), again(*backend_, {width_.rows});
    backend_->cross_entropy_forward(logits.tensor, targets.tensor, losses.tensor);
    backend_->cross_entropy_backward(logits.tensor, targets.tensor, 0.5F, {}, again.tensor);
    Doubles totals = mean_of_rows([&](std::size_t i, auto) { return std::exp(logits.values[i]); }), expected;
    for (double& total : totals) total *= static_cast<double>(width_.columns);
    for (std::size_t row = 0; row < labels.size(); ++row) {
        const std::size_t first = row * static_cast<std::size_t>(width_.columns);
        expected.push_back(labels[row] == kIgnoredLabel
                               ? 0.0
                               : std::log(totals[row]) - logits.values[first + static_cast<std::size_t>(labels[row])]);
    }
    EXPECT_LE(relative_l2(losses, expected), kOpTolerance);
    EXPECT_EQ(again.read(), losses.read());
    expect_near(logits, each([&](std::size_t i, std::size_t row, std::size_t column) {
                    if (labels[row] == kIgnoredLabel) return 0.0;
                    const double hit = column == static_cast<std::size_t>(labels[row]) ? 1.0 : 0.0;
                    return 0.5 * (std::exp(logits.values[i]) / totals[row] - hit);
                }),
                "the gradient of logits");
}

// Tokens that occur once, a few times and on most rows.
TEST_P(WidthTest, Embeddings) {
    constexpr std::int64_t kTokens = 11;
    std::vector<std::int32_t> ids, by_id(static_cast<std::size_t>(width_.rows));
    for (std::int64_t row = 0; row < width_.rows; ++row)
        ids.push_back(row % 7 == 5 ? static_cast<std::int32_t>(row % kTokens) : 3);
    tensor::sort_by_id(ids, by_id);
    const Given table(*backend_, formats_.weights, kTokens, width_.columns, width_.first, 1), out = activations(2);
    const Given of_table(*backend_, DType::kF32, kTokens, width_.columns, width_.first, 3), dy = activations(4);
    const OnDevice<std::int32_t> tokens = integers(*backend_, ids), sorted = integers(*backend_, by_id);
    const auto columns = static_cast<std::size_t>(width_.columns);
    const auto in_table = [&](std::size_t row, std::size_t column) {
        return static_cast<std::size_t>(ids[row]) * columns + column;
    };
    backend_->embedding_forward(table.tensor, tokens.tensor, out.tensor);
    expect_near(out,
                each([&](auto, std::size_t row, std::size_t column) { return table.values[in_table(row, column)]; }),
                "the rows of tokens");
    Doubles added = of_table.values, alone(added.size(), 0.0);
    each([&](std::size_t i, std::size_t row, std::size_t column) {
        added[in_table(row, column)] += dy.values[i];
        alone[in_table(row, column)] += dy.values[i];
        return 0.0;
    });
    backend_->embedding_backward(tokens.tensor, sorted.tensor, dy.tensor, of_table.tensor, true);
    expect_near(of_table, added, "added to the table's gradient");
    backend_->embedding_backward(tokens.tensor, sorted.tensor, dy.tensor, of_table.tensor, false);
    expect_near(of_table, alone, "the table's gradient");
}

// A range each of few and many elements, of which some lie as vectors do and others do not.
TEST_P(WidthTest, AStepOfManyRangesIsThatOfEach) {
    const AdamWStep step{.learning_rate = 0.01F, .beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 1e-8F, .weight_decay = 0.1F};
    const OnDevice<StepScalars> numbers = scalars(*backend_, {.factor = 0.5, .updates = 3});
    std::vector<Doubles> results;
    for (const bool at_once : {false, true}) {
        const auto state = [&](unsigned seed) {
            return matrix(formats_.weights == DType::kF16 ? DType::kF32 : formats_.weights, width_.columns, seed);
        };
        const Given weights = state(1), gradients = activations(2), first = state(3), second = state(4);
        std::vector<OptimizerRange> ranges;
        std::int64_t begin = 0;
        for (std::int64_t length = 1; begin < width_.rows * width_.columns; length += length / 9 + 1) {
            const std::int64_t count = std::min(length, width_.rows * width_.columns - begin);
            const auto part = [&](const Given& of) { return Tensor(of.tensor.at(begin), of.tensor.dtype(), {count}); };
            ranges.push_back({.weights = part(weights),
                              .gradients = part(gradients),
                              .first_moments = part(first),
                              .second_moments = part(second),
                              .stored = {},
                              .seed = 5,
                              .first_element = 1000 + begin,
                              .decays = length % 2 == 0});
            begin += count;
        }
        backend_->scale(second.tensor, 0.0F);
        if (at_once) {
            backend_->adamw(step, numbers.tensor, ranges);
            backend_->sgd({.learning_rate = 0.1F, .momentum = 0.9F, .weight_decay = 0.1F}, numbers.tensor, ranges);
        } else {
            for (const OptimizerRange& range : ranges) backend_->adamw(step, numbers.tensor, range);
            for (const OptimizerRange& range : ranges)
                backend_->sgd({.learning_rate = 0.1F, .momentum = 0.9F, .weight_decay = 0.1F}, numbers.tensor, range);
        }
        for (const Given* one : {&weights, &first, &second}) results.push_back(one->read());
        const OnDevice<double> squares = one_number(*backend_, 7);
        std::vector<Tensor> parts;
        for (const OptimizerRange& range : ranges) parts.push_back(range.gradients);
        backend_->sum_of_squares(parts, squares.tensor, true);
        double expected = 7;
        for (const double value : gradients.values) expected += value * value;
        EXPECT_NEAR(squares.read()[0], expected, kOpTolerance * expected);
    }
    for (std::size_t i : {0U, 1U, 2U}) EXPECT_EQ(results[i] == results[i + 3], true) << i;
}

constexpr Pair kPairs[] = {{"fp32", DType::kF32, DType::kF32, DType::kF32},
                           {"bf16", DType::kBF16, DType::kBF16, DType::kBF16},
                           {"fp16", DType::kF16, DType::kF16, DType::kF16},
                           {"fp32_residual", DType::kBF16, DType::kF32, DType::kBF16}};
// On a GPU: a warp a row, a block a row of two or four vectors a thread, rows too long for registers, odd ones, and
// more rows than the blocks that add them up have at once.
constexpr Width kWidths[] = {{1, 8, 0},    {19, 264, 0},  {2200, 8, 0}, {19, 1024, 0}, {3, 4096, 0}, {2, 5000, 8},
                             {3, 8192, 0}, {2, 11008, 0}, {1, 4095, 0}, {9, 1024, 1},  {40, 3, 0}};

std::string name_of(const ::testing::TestParamInfo<WidthTest::ParamType>& info) {
    const auto& [name, formats, width] = info.param;
    return name + "_" + formats.name + "_" + std::to_string(width.rows) + "_rows_of_" + std::to_string(width.columns) +
           (width.first == 1 ? "_unaligned" : "");
}

INSTANTIATE_TEST_SUITE_P(All, WidthTest,
                         ::testing::Combine(::testing::ValuesIn(tested_backends()), ::testing::ValuesIn(kPairs),
                                            ::testing::ValuesIn(kWidths)),
                         name_of);

}  // namespace
}  // namespace atl::kernels
