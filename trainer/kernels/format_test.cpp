// Operations on tensors that are kept in fp16 or bf16, on every backend: what works element by element gives what it
// gives on their fp32 copies, rounded once, bit for bit; norms and losses, whose sums may be taken in another order,
// are within half a step of that, and products near to it. Attention is in attention_format_test.cpp; here is what the
// CPU's gives beyond that.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <tuple>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/kept.h"
#include "trainer/kernels/testing/worse.h"

namespace atl::kernels {
namespace {

using tensor::DType;

struct Shape {
    std::int64_t rows, columns;
};

class FormatTest : public ::testing::TestWithParam<std::tuple<std::string, DType>> {
  protected:
    using Operation = std::function<void(std::span<const Tensor>)>;

    static constexpr double kSumsDiffer = 2e-6;  // at most, of the values' root mean square

    DType dtype() const { return std::get<1>(GetParam()); }
    double half_step() const { return dtype() == DType::kBF16 ? 0x1p-8 : 0x1p-11; }

    std::vector<Kept> make(std::initializer_list<Shape> shapes) {
        std::vector<Kept> kept;
        for (const Shape& shape : shapes)
            kept.emplace_back(*backend_, dtype(), shape.rows, shape.columns, 10 + static_cast<unsigned>(kept.size()));
        return kept;
    }

    // Tensors of these shapes, after the operation was run on their fp32 copies and on them.
    std::vector<Kept> after(std::initializer_list<Shape> shapes, const Operation& operation) {
        std::vector<Kept> kept = make(shapes);
        std::vector<Tensor> wide, narrow;
        for (const Kept& one : kept) {
            wide.push_back(one.wide.tensor);
            narrow.push_back(one.narrow.tensor);
        }
        operation(wide);
        operation(narrow);
        return kept;
    }

    void expect_rounded_once(std::initializer_list<Shape> shapes, const Operation& operation) {
        const std::vector<Kept> kept = after(shapes, operation);
        for (std::size_t i = 0; i < kept.size(); ++i) {
            const Tensor& wide = kept[i].wide.tensor;
            const auto expected = unset(wide);
            backend_->convert(wide, expected.tensor);
            EXPECT_EQ(kept[i].narrow.read() == expected.read(), true) << "tensor " << i;
        }
    }

    // All elements, to half a step of the format, and what fp32 sums in another order differ by.
    void expect_within_half_a_step(std::initializer_list<Shape> shapes, const Operation& operation) {
        const std::vector<Kept> kept = after(shapes, operation);
        for (std::size_t i = 0; i < kept.size(); ++i) {
            const std::vector<float> expected = kept[i].wide.read();
            EXPECT_LE(half_steps(expected, kept[i].read(*backend_)), 1) << "tensor " << i;
        }
    }

    // The largest difference, in halves of a step.
    double half_steps(const std::vector<float>& expected, const std::vector<float>& got) const {
        double squares = 0, furthest = 0;
        for (const float value : expected) squares += std::pow(static_cast<double>(value), 2);
        const double small = kSumsDiffer * std::sqrt(squares / static_cast<double>(expected.size()));
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const auto wanted = static_cast<double>(expected[i]);
            const double difference = std::abs(static_cast<double>(got[i]) - wanted);
            furthest = worse(furthest, difference / (half_step() * std::abs(wanted) + small));
        }
        return furthest;
    }

    // As large as that, in the format.
    OnDevice<std::uint16_t> unset(const Tensor& like) {
        return halves(*backend_, dtype(), {like.rows(), like.columns()},
                      std::vector<std::uint16_t>(static_cast<std::size_t>(like.element_count())));
    }

    // fp32 values to what the format holds of them.
    void round(const Tensor& wide) {
        const auto narrow = unset(wide);
        backend_->convert(wide, narrow.tensor);
        backend_->convert(narrow.tensor, wide);
    }

    std::unique_ptr<Backend> backend_ = make_tested_backend(std::get<0>(GetParam()));
};

constexpr std::int64_t kFormatRows = 37, kFormatColumns = 83;
constexpr Shape kFormatShape{kFormatRows, kFormatColumns};

TEST_P(FormatTest, WhatWorksElementByElement) {
    expect_rounded_once({kFormatShape, kFormatShape, kFormatShape, kFormatShape}, [&](std::span<const Tensor> x) {
        backend_->add(x[0], x[1], x[2]);
        backend_->add(x[0], x[3], x[3]);
        backend_->relu_backward(x[0], x[1]);
        backend_->dropout({.probability = 0.3, .seed = 1, .stream = 2, .first_element = 3}, x[0], x[0]);
    });
    expect_rounded_once({{5000, 1}}, [&](std::span<const Tensor> x) { backend_->scale(x[0], -0.7F); });
}

TEST_P(FormatTest, Biases) {
    expect_rounded_once({kFormatShape, {1, kFormatColumns}, kFormatShape, kFormatShape, kFormatShape},
                        [&](std::span<const Tensor> x) {
                            const Tensor bias = x[1].reshape({kFormatColumns});
                            backend_->add_bias(x[0], bias, x[2], x[3]);
                            backend_->add_bias(x[4], bias, {}, x[4]);
                            backend_->bias_relu(x[0], bias);
                        });
    expect_within_half_a_step({kFormatShape, {1, kFormatColumns}}, [&](std::span<const Tensor> x) {
        backend_->sum_rows(x[0], x[1].reshape({kFormatColumns}), false);
    });
}

TEST_P(FormatTest, SumsAreThoseOfTheFp32Copy) {
    const std::vector<Kept> kept = make({kFormatShape});
    const auto sums_of = [&](const Tensor& x) {
        const OnDevice<double> sum = one_number(*backend_, 0), squares = one_number(*backend_, 0);
        backend_->sum(x, sum.tensor, false);
        backend_->sum_of_squares(x, squares.tensor, false);
        return std::array{sum.read()[0], squares.read()[0]};
    };
    const auto of_narrow = sums_of(kept[0].narrow.tensor), of_wide = sums_of(kept[0].wide.tensor);
    for (const std::size_t i : {0U, 1U}) EXPECT_NEAR(of_narrow[i], of_wide[i], 1e-9);
    EXPECT_GT(of_narrow[1], 1);
}

TEST_P(FormatTest, Embeddings) {
    const OnDevice<std::int32_t> ids = integers(*backend_, {10, 0, 3, 3});
    expect_rounded_once({{11, kFormatColumns}, {4, kFormatColumns}},
                        [&](std::span<const Tensor> x) { backend_->embedding_forward(x[0], ids.tensor, x[1]); });
    const OnDevice<std::int32_t> by_id = integers(*backend_, {1, 2, 3, 0});
    std::vector<Kept> kept = make({{4, kFormatColumns}});
    OnDevice<> of_narrow(*backend_, {11, kFormatColumns}), of_wide(*backend_, {11, kFormatColumns});
    backend_->embedding_backward(ids.tensor, by_id.tensor, kept[0].narrow.tensor, of_narrow.tensor, false);
    backend_->embedding_backward(ids.tensor, by_id.tensor, kept[0].wide.tensor, of_wide.tensor, false);
    EXPECT_EQ(of_narrow.read(), of_wide.read());
}

TEST_P(FormatTest, RmsNorms) {
    expect_within_half_a_step(
        {kFormatShape, {1, kFormatColumns}, kFormatShape, kFormatShape, kFormatShape, kFormatShape},
        [&](std::span<const Tensor> x) {
            const Tensor weight = x[1].reshape({kFormatColumns});
            OnDevice<> rstd(*backend_, {kFormatRows});
            backend_->rmsnorm_forward(x[0], weight, 1e-5F, x[2], rstd.tensor);
            backend_->rmsnorm_apply(x[0], weight, rstd.tensor, x[3]);
            backend_->rmsnorm_backward(x[0], weight, rstd.tensor, x[4], x[5], x[5], {}, false);
        });
}

TEST_P(FormatTest, ANormOfASumIsThatOfTheSumAsItIsKept) {
    std::vector<Kept> kept =
        make({kFormatShape, kFormatShape, {1, kFormatColumns}, kFormatShape, kFormatShape, kFormatShape});
    const auto narrow = [&](std::size_t i) { return kept[i].narrow.tensor; };
    const Tensor weight = narrow(2).reshape({kFormatColumns});
    OnDevice<> rstd(*backend_, {kFormatRows}), expected_rstd(*backend_, {kFormatRows});
    backend_->add_rmsnorm_forward(narrow(0), narrow(1), weight, 1e-5F, narrow(3), narrow(4), rstd.tensor);
    backend_->add(narrow(0), narrow(1), narrow(1));
    backend_->rmsnorm_forward(narrow(1), weight, 1e-5F, narrow(5), expected_rstd.tensor);
    EXPECT_EQ(kept[3].narrow.read(), kept[1].narrow.read());
    EXPECT_LE(half_steps(kept[5].read(*backend_), kept[4].read(*backend_)), 2) << "both are rounded";
    const std::vector<float> expected = expected_rstd.read();
    EXPECT_LE(relative_l2(rstd, {expected.begin(), expected.end()}), kOpTolerance);
}

TEST_P(FormatTest, NormsOfHeads) {
    AttentionShape shape{.batch = 1, .length = 9, .heads = 4, .kv_heads = 2, .head_channels = 12};
    const std::int64_t rows = shape.length, columns = shape.qkv_columns(), channels = shape.head_channels;
    expect_within_half_a_step(
        {{rows, columns}, {2, channels}, {rows, columns}, {rows, columns}}, [&](std::span<const Tensor> x) {
            shape.format = x[0].dtype();
            const Tensor of_queries = x[1].row_range(0, 1).reshape({channels});
            const Tensor of_keys = x[1].row_range(1, 1).reshape({channels});
            OnDevice<> rstd(*backend_, {rows, shape.heads + shape.kv_heads});
            backend_->norm_heads(shape, x[0], of_queries, of_keys, 1e-6F, x[2], rstd.tensor);
            backend_->norm_heads_backward(shape, x[0], of_queries, of_keys, rstd.tensor, x[3], {}, {}, false);
        });
}

TEST_P(FormatTest, LayerNorms) {
    expect_within_half_a_step(
        {kFormatShape, {2, kFormatColumns}, kFormatShape, kFormatShape, kFormatShape, kFormatShape},
        [&](std::span<const Tensor> x) {
            const Tensor weight = x[1].row_range(0, 1).reshape({kFormatColumns}),
                         bias = x[1].row_range(1, 1).reshape({kFormatColumns});
            OnDevice<> moments(*backend_, {kFormatRows, 2});
            backend_->layernorm_forward(x[0], weight, bias, 1e-5F, x[2], moments.tensor);
            backend_->layernorm_apply(x[0], weight, bias, moments.tensor, x[3]);
            backend_->layernorm_backward(x[0], weight, moments.tensor, x[4], x[5], x[5], {}, {}, false);
        });
}

// Tiles of many rows, which are taken in pieces.
TEST_P(FormatTest, TheGradientsOfNormsWeightsAreNearThoseOfTheFp32Copy) {
    constexpr std::int64_t kMany = 700, kWide = 300;
    std::vector<Kept> kept = make({{kMany, kWide}, {1, kWide}, {kMany, kWide}, {kMany, kWide}});
    std::vector<std::vector<float>> gradients;
    for (const bool narrow : {false, true}) {
        const auto x = [&](std::size_t i) { return narrow ? kept[i].narrow.tensor : kept[i].wide.tensor; };
        OnDevice<> moments(*backend_, {kMany, 2});
        const Tensor vector = x(1).reshape({kWide});
        backend_->layernorm_forward(x(0), vector, vector, 1e-5F, x(3), moments.tensor);
        const OnDevice<> of_weight = random(*backend_, {kWide}, 5), of_bias = random(*backend_, {kWide}, 5);
        backend_->layernorm_backward(x(0), vector, moments.tensor, x(2), {}, x(3), of_weight.tensor, of_bias.tensor,
                                     true);
        gradients.push_back(of_weight.read());
        gradients.push_back(of_bias.read());
    }
    for (std::size_t i : {0U, 1U}) {
        const std::vector<double> expected(gradients[i].begin(), gradients[i].end());
        EXPECT_LE(relative_l2(gradients[i + 2], expected), kOpTolerance);
    }
}

TEST_P(FormatTest, Swiglu) {
    expect_rounded_once({{kFormatRows, 2 * kFormatColumns}, kFormatShape, kFormatShape},
                        [&](std::span<const Tensor> x) {
                            backend_->swiglu_forward(x[0], x[2]);
                            backend_->swiglu_backward(x[0], x[1], x[0], x[1]);
                        });
}

TEST_P(FormatTest, CrossEntropy) {
    std::vector<std::int32_t> labels(kFormatRows, 5);
    labels[3] = kIgnoredLabel;
    const OnDevice<std::int32_t> targets = integers(*backend_, labels);
    OnDevice<> of_narrow(*backend_, {kFormatRows}), of_wide(*backend_, {kFormatRows});
    expect_within_half_a_step({kFormatShape}, [&](std::span<const Tensor> x) {
        const Tensor& losses = x[0].dtype() == DType::kF32 ? of_wide.tensor : of_narrow.tensor;
        backend_->cross_entropy_forward(x[0], targets.tensor, losses);
        backend_->cross_entropy_backward(x[0], targets.tensor, 0.25F, {}, losses);
    });
    const std::vector<float> expected = of_wide.read();
    EXPECT_LE(relative_l2(of_narrow, {expected.begin(), expected.end()}), kOpTolerance);
}

TEST_P(FormatTest, RotaryPositions) {
    AttentionShape shape{.batch = 1, .length = 45, .heads = 4, .kv_heads = 2, .head_channels = 12};
    const OnDevice<> table = random(*backend_, {shape.length, shape.head_channels}, 9);
    std::vector<std::int32_t> places;
    for (std::int32_t row = 0; row < 45; ++row) places.push_back(44 - row);
    const OnDevice<std::int32_t> positions = integers(*backend_, places);
    const Shape qkv{shape.length, shape.qkv_columns()};
    expect_rounded_once({qkv, qkv}, [&](std::span<const Tensor> x) {
        shape.format = x[0].dtype();
        backend_->rope(shape, table.tensor, positions.tensor, x[0], false);
        backend_->rope(shape, table.tensor, positions.tensor, x[1], true);
    });
}

// The CPU's attention rounds nothing but what it writes.
class CpuFormatTest : public FormatTest {};

TEST_P(CpuFormatTest, Attention) {
    AttentionShape shape{.batch = 2, .length = 45, .heads = 4, .kv_heads = 2, .head_channels = 12};
    const std::int64_t rows = shape.batch * shape.length, columns = shape.heads * shape.head_channels;
    std::vector<std::int32_t> begins;
    for (std::int64_t row = 0; row < rows; ++row) begins.push_back(row % shape.length < 20 ? 0 : 20);
    const OnDevice<std::int32_t> starts = integers(*backend_, begins);
    expect_rounded_once({{rows, shape.qkv_columns()}, {rows, columns}}, [&](std::span<const Tensor> x) {
        shape.format = x[0].dtype();
        tensor::Arena workspace(backend_->allocate(backend_->attention_workspace_bytes(shape)).value());
        const OnDevice<std::byte> kept_for_backward = attention_kept(*backend_, shape);
        backend_->attention_forward(shape, x[0], {starts.tensor}, x[1], kept_for_backward.tensor, workspace);
    });
}

// What all gradients of a query's scores have in common comes from the probabilities there, from out in fp32. Values
// with much in common show the difference: through an out that is rounded the error is many roundings.
TEST_P(CpuFormatTest, AttentionsGradientsAreNearThoseOfTheFp32Copy) {
    AttentionShape shape{.batch = 1, .length = 45, .heads = 4, .kv_heads = 2, .head_channels = 12};
    const std::int64_t columns = shape.heads * shape.head_channels, wide_columns = shape.qkv_columns();
    std::vector<Kept> kept = make({{45, wide_columns}, {45, columns}, {45, columns}, {45, wide_columns}});
    std::vector<float> shifted = kept[0].wide.given;
    for (std::int64_t row = 0; row < 45; ++row) {
        for (std::int64_t c = wide_columns - shape.kv_heads * shape.head_channels; c < wide_columns; ++c)
            shifted[static_cast<std::size_t>(row * wide_columns + c)] += 16;
    }
    kept[0].write(*backend_, shifted);
    const OnDevice<std::int32_t> starts = integers(*backend_, std::vector<std::int32_t>(45, 0));
    for (const bool narrow : {false, true}) {
        const auto x = [&](std::size_t i) { return narrow ? kept[i].narrow.tensor : kept[i].wide.tensor; };
        shape.format = x(0).dtype();
        tensor::Arena workspace(backend_->allocate(backend_->attention_workspace_bytes(shape)).value());
        const OnDevice<std::byte> kept_for_backward = attention_kept(*backend_, shape);
        backend_->attention_forward(shape, x(0), {starts.tensor}, x(1), kept_for_backward.tensor, workspace);
        backend_->attention_backward(shape, x(0), {starts.tensor}, x(1), kept_for_backward.tensor, x(2), {}, x(3),
                                     workspace);
    }
    const std::vector<float> of_wide = kept[3].wide.read();
    const std::vector<double> expected(of_wide.begin(), of_wide.end());
    EXPECT_LE(relative_l2(kept[3].read(*backend_), expected), half_step());
}

TEST_P(CpuFormatTest, AttentionWithACache) {
    AttentionShape shape{.batch = 2, .length = 5, .heads = 4, .kv_heads = 2, .head_channels = 12};
    const std::int64_t width = shape.kv_heads * shape.head_channels, rows = shape.batch * shape.length;
    expect_rounded_once(
        {{rows, shape.qkv_columns()}, {shape.batch * 20, width}, {shape.batch * 20, width}, {rows, 2 * width}},
        [&](std::span<const Tensor> x) {
            shape.format = x[0].dtype();
            tensor::Arena workspace(backend_->allocate(backend_->attention_cached_workspace_bytes(shape, 20)).value());
            backend_->attention_cached(shape, x[0], 9, x[1], x[2], x[3], workspace);
        });
}

// One tile, and several with incomplete ones at each end; c in the format, in fp32, and added to.
TEST_P(FormatTest, AProductIsWithinOneRoundingOfTheExactOne) {
    for (const auto& [m, n, k] : {std::tuple(21, 34, 19), std::tuple(301, 290, 523)}) {
        for (const int transpose : {0, 1, 2, 3}) {
            const bool of_a = (transpose & 1) != 0, of_b = (transpose & 2) != 0;
            const Kept a(*backend_, dtype(), of_a ? k : m, of_a ? m : k, 1);
            const Kept b(*backend_, dtype(), of_b ? n : k, of_b ? k : n, 2);
            Kept c(*backend_, dtype(), m, n, 3);
            OnDevice<> wide(*backend_, {m, n}, 0.5F);
            const std::vector<float> before = c.wide.given;
            backend_->matmul(a.narrow.tensor, of_a, b.narrow.tensor, of_b, c.narrow.tensor, true);
            backend_->matmul(a.narrow.tensor, of_a, b.narrow.tensor, of_b, wide.tensor, true);
            backend_->convert(c.narrow.tensor, c.wide.tensor);
            c.wide.write(c.wide.read());
            wide.write(wide.read());
            double worst = 0, worst_wide = 0;
            for (std::int64_t i = 0; i < m; ++i) {
                for (std::int64_t j = 0; j < n; ++j) {
                    double sum = 0, size = 0;
                    for (std::int64_t l = 0; l < k; ++l) {
                        const double term = a.wide[of_a ? l * m + i : i * k + l] * b.wide[of_b ? j * k + l : l * n + j];
                        sum += term;
                        size += std::abs(term);
                    }
                    const double exact = sum + static_cast<double>(before[static_cast<std::size_t>(i * n + j)]);
                    worst = worse(worst, (std::abs(c.wide[i * n + j] - exact) - 1e-5 * size) / std::abs(exact));
                    worst_wide = worse(worst_wide, std::abs(wide[i * n + j] - sum - 0.5) / size);
                }
            }
            EXPECT_LE(worst, half_step() * 1.001) << m << " " << n << " " << k << of_a << of_b;
            EXPECT_LE(worst_wide, 2e-6) << m << " " << n << " " << k << of_a << of_b;
        }
    }
}

TEST_P(FormatTest, AProductTakesARightOperandOfMoreDigitsAsIfItWereRounded) {
    const Kept a(*backend_, dtype(), 40, 70, 1);
    const OnDevice<> b = random(*backend_, {70, 50}, 2);
    const OnDevice<> rounded = random(*backend_, {70, 50}, 2);
    const OnDevice<> c(*backend_, {40, 50}), expected(*backend_, {40, 50});
    round(rounded.tensor);
    backend_->matmul(a.narrow.tensor, false, b.tensor, false, c.tensor, false);
    backend_->matmul(a.wide.tensor, false, rounded.tensor, false, expected.tensor, false);
    const std::vector<float> wanted = expected.read();
    EXPECT_LE(relative_l2(c, {wanted.begin(), wanted.end()}), kOpTolerance);
}

TEST_P(FormatTest, AProductIntoAColumnRangeLeavesTheOtherColumnsAlone) {
    const OnDevice<> a = random(*backend_, {5, 6}, 1), b = random(*backend_, {6, 3}, 2);
    for (const bool accumulate : {false, true}) {
        const Kept c(*backend_, dtype(), 5, 8, 3);
        backend_->matmul(a.tensor, false, b.tensor, false, c.narrow.tensor.column_range(2, 3), accumulate);
        backend_->convert(c.narrow.tensor, c.wide.tensor);
        const std::vector<float> got = c.wide.read();
        for (std::int64_t m = 0; m < 5; ++m) {
            for (std::int64_t n = 0; n < 8; ++n) {
                const bool is_inside = n >= 2 && n < 5;
                double expected = is_inside && !accumulate ? 0.0 : c.wide[m * 8 + n];
                for (std::int64_t k = 0; is_inside && k < 6; ++k) expected += a[m * 6 + k] * b[k * 3 + n - 2];
                const double tolerance = is_inside ? half_step() * std::abs(expected) + 1e-5 : 0.0;
                EXPECT_NEAR(got[static_cast<std::size_t>(m * 8 + n)], expected, tolerance) << m << " " << n;
            }
        }
    }
}

// More than a GPU converts at a time. Row i of a chooses row i % kInner of b, so every number is exact.
TEST_P(FormatTest, ALargeProductOfSeveralFormatsIsRightInEveryColumn) {
    constexpr std::int64_t kLong = 1 << 15, kWide = 300, kInner = 8;
    OnDevice<> a(*backend_, {kLong, kInner}, 0.0F), b(*backend_, {kInner, kWide}), got(*backend_, {kLong, kWide});
    std::vector<float> choice = a.given, values = b.given;
    for (std::size_t i = 0; i < kLong; ++i) choice[i * kInner + i % kInner] = 1;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 31 % 120);
    a.write(choice);
    b.write(values);
    const auto narrow = unset(b.tensor), c = unset(got.tensor);
    backend_->convert(b.tensor, narrow.tensor);
    for (const bool accumulate : {false, true}) {
        backend_->matmul(a.tensor, false, narrow.tensor, false, c.tensor, accumulate);
        backend_->convert(c.tensor, got.tensor);
        const std::vector<float> all = got.read();
        std::int64_t wrong = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            const float expected = values[i / kWide % kInner * kWide + i % kWide];
            wrong += all[i] == (accumulate ? 2 * expected : expected) ? 0 : 1;
        }
        EXPECT_EQ(wrong, 0) << accumulate;
    }
}

auto each_format(const std::vector<std::string>& backends) {
    return ::testing::Combine(::testing::ValuesIn(backends), ::testing::Values(DType::kF16, DType::kBF16));
}
std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, DType>>& test) {
    return std::get<0>(test.param) + (std::get<1>(test.param) == DType::kF16 ? "_fp16" : "_bf16");
}
INSTANTIATE_TEST_SUITE_P(, FormatTest, each_format(tested_backends()), name_of);
INSTANTIATE_TEST_SUITE_P(, CpuFormatTest, each_format(tested_cpu_backends()), name_of);

// An AdamW step on weights that have no masters.
class WeightsWithoutMastersTest : public ::testing::TestWithParam<std::string> {
  protected:
    static constexpr std::int64_t kCount = 3000;

    // Weights of 1 that a step moves by an eighth of the distance to the next lower number in bf16.
    std::vector<std::uint16_t> stepped(std::uint64_t seed, std::vector<std::int64_t> cuts = {}) {
        const auto weights = halves(*backend_, DType::kBF16, {kCount}, std::vector<std::uint16_t>(kCount, 0x3f80));
        const OnDevice<> gradients(*backend_, {kCount}, 1.0F), first(*backend_, {kCount}, 0.0F),
            second(*backend_, {kCount}, 0.0F);
        const OnDevice<StepScalars> numbers = scalars(*backend_, {.updates = 1});
        cuts.push_back(kCount);
        std::int64_t begin = 0;
        for (const std::int64_t end : cuts) {
            const auto part = [&](const Tensor& all) { return Tensor(all.at(begin), all.dtype(), {end - begin}); };
            backend_->adamw({.learning_rate = 0x1p-11F, .beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 0, .weight_decay = 0},
                            numbers.tensor,
                            {.weights = part(weights.tensor),
                             .gradients = part(gradients.tensor),
                             .first_moments = part(first.tensor),
                             .second_moments = part(second.tensor),
                             .stored = {},
                             .seed = seed,
                             .first_element = begin});
            begin = end;
        }
        return weights.read();
    }

    std::unique_ptr<Backend> backend_ = make_tested_backend(GetParam());
};

TEST_P(WeightsWithoutMastersTest, TheyMoveAsOftenAsTheMeanAsks) {
    std::int64_t moved = 0;
    for (const std::uint16_t bits : stepped(1)) {
        ASSERT_TRUE(bits == 0x3f80 || bits == 0x3f7f) << bits;
        moved += bits == 0x3f7f ? 1 : 0;
    }
    // 375 are expected, with a standard deviation of 18; rounding to nearest would move none.
    EXPECT_NEAR(static_cast<double>(moved), kCount / 8.0, 90);
}

TEST_P(WeightsWithoutMastersTest, TheyDoNotDependOnHowTheyAreCut) {
    EXPECT_EQ(stepped(7), stepped(7, {1, 3, 1030, 2999}));
    EXPECT_NE(stepped(7), stepped(8));
}

INSTANTIATE_TEST_SUITE_P(, WeightsWithoutMastersTest, ::testing::ValuesIn(tested_backends()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace atl::kernels
