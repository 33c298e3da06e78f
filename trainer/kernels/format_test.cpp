// Operations on tensors that are kept in fp16 or bf16: each gives what it gives on their fp32 copies, rounded once, bit
// for bit; only products, whose sums may be taken in another order, are near to it. For every instruction set of this
// machine and the GPU's kernels.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <tuple>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/owned_tensor.h"
#include "trainer/kernels/testing/worse.h"

namespace atl::kernels {
namespace {

using tensor::DType;

// Random values that a format holds exactly, kept in it and in fp32.
struct Kept {
    Owned wide;
    std::vector<std::uint16_t> bits;
    Tensor narrow;

    Kept(Backend& backend, DType dtype, std::int64_t rows, std::int64_t columns, unsigned seed)
        : wide(random({rows, columns}, seed)), bits(wide.values.size()), narrow(bits.data(), dtype, {rows, columns}) {
        backend.convert(wide.tensor, narrow);
        backend.convert(narrow, wide.tensor);
    }
};

struct Shape {
    std::int64_t rows, columns;
};

class FormatTest : public ::testing::TestWithParam<std::tuple<std::string, DType>> {
  protected:
    using Operation = std::function<void(std::span<const Tensor>)>;

    DType dtype() const { return std::get<1>(GetParam()); }
    double half_step() const { return dtype() == DType::kBF16 ? 0x1p-8 : 0x1p-11; }

    std::vector<Kept> make(std::initializer_list<Shape> shapes) {
        std::vector<Kept> kept;
        for (const Shape& shape : shapes)
            kept.emplace_back(*backend_, dtype(), shape.rows, shape.columns, 10 + static_cast<unsigned>(kept.size()));
        return kept;
    }

    // Runs the operation on tensors of these shapes in fp32 and in the format, and compares all of them afterwards.
    void expect_rounded_once(std::initializer_list<Shape> shapes, const Operation& operation) {
        std::vector<Kept> kept = make(shapes);
        std::vector<Tensor> wide, narrow;
        for (const Kept& one : kept) {
            wide.push_back(one.wide.tensor);
            narrow.push_back(one.narrow);
        }
        operation(wide);
        operation(narrow);
        for (std::size_t i = 0; i < kept.size(); ++i) {
            std::vector<std::uint16_t> expected(kept[i].bits.size());
            backend_->convert(wide[i], Tensor(expected.data(), dtype(), {wide[i].rows(), wide[i].columns()}));
            EXPECT_EQ(kept[i].bits == expected, true) << "tensor " << i;
        }
    }

    // fp32 values to what the format holds of them.
    void round(const Tensor& wide) {
        std::vector<std::uint16_t> bits(static_cast<std::size_t>(wide.element_count()));
        const Tensor narrow(bits.data(), dtype(), {wide.rows(), wide.columns()});
        backend_->convert(wide, narrow);
        backend_->convert(narrow, wide);
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
    expect_rounded_once(
        {kFormatShape, {1, kFormatColumns}, kFormatShape, kFormatShape, kFormatShape, {1, kFormatColumns}},
        [&](std::span<const Tensor> x) {
            const Tensor bias = x[1].reshape({kFormatColumns});
            backend_->add_bias(x[0], bias, x[2], x[3]);
            backend_->add_bias(x[4], bias, {}, x[4]);
            backend_->bias_relu(x[0], bias);
            backend_->sum_rows(x[2], x[5].reshape({kFormatColumns}), false);
        });
}

TEST_P(FormatTest, SumsAreThoseOfTheFp32Copy) {
    const std::vector<Kept> kept = make({kFormatShape});
    std::array<double, 2> of_narrow{}, of_wide{};
    for (const auto& [x, sums] : {std::pair(kept[0].narrow, &of_narrow), std::pair(kept[0].wide.tensor, &of_wide)}) {
        backend_->sum(x, one_number((*sums)[0]), false);
        backend_->sum_of_squares(x, one_number((*sums)[1]), false);
    }
    EXPECT_EQ(of_narrow, of_wide);
    EXPECT_NE(of_narrow[1], 0);
}

TEST_P(FormatTest, Embeddings) {
    std::vector<std::int32_t> ids = {10, 0, 3, 3};
    expect_rounded_once({{11, kFormatColumns}, {4, kFormatColumns}},
                        [&](std::span<const Tensor> x) { backend_->embedding_forward(x[0], integers(ids), x[1]); });
    std::vector<Kept> kept = make({{4, kFormatColumns}});
    Owned of_narrow({11, kFormatColumns}), of_wide({11, kFormatColumns});
    backend_->embedding_backward(integers(ids), kept[0].narrow, of_narrow.tensor, false);
    backend_->embedding_backward(integers(ids), kept[0].wide.tensor, of_wide.tensor, false);
    EXPECT_EQ(of_narrow.values, of_wide.values);
}

TEST_P(FormatTest, RmsNorms) {
    expect_rounded_once({kFormatShape, {1, kFormatColumns}, kFormatShape, kFormatShape, kFormatShape, kFormatShape},
                        [&](std::span<const Tensor> x) {
                            const Tensor weight = x[1].reshape({kFormatColumns});
                            Owned rstd({kFormatRows});
                            backend_->rmsnorm_forward(x[0], weight, 1e-5F, x[2], rstd.tensor);
                            backend_->rmsnorm_apply(x[0], weight, rstd.tensor, x[3]);
                            backend_->rmsnorm_backward(x[0], weight, rstd.tensor, x[4], x[5], x[5], {}, false);
                        });
}

TEST_P(FormatTest, ANormOfASumIsThatOfTheSumAsItIsKept) {
    std::vector<Kept> kept =
        make({kFormatShape, kFormatShape, {1, kFormatColumns}, kFormatShape, kFormatShape, kFormatShape});
    const Tensor weight = kept[2].narrow.reshape({kFormatColumns});
    Owned rstd({kFormatRows}), expected_rstd({kFormatRows});
    backend_->add_rmsnorm_forward(kept[0].narrow, kept[1].narrow, weight, 1e-5F, kept[3].narrow, kept[4].narrow,
                                  rstd.tensor);
    backend_->add(kept[0].narrow, kept[1].narrow, kept[1].narrow);
    backend_->rmsnorm_forward(kept[1].narrow, weight, 1e-5F, kept[5].narrow, expected_rstd.tensor);
    EXPECT_EQ(kept[3].bits, kept[1].bits);
    EXPECT_EQ(kept[4].bits, kept[5].bits);
    EXPECT_EQ(rstd.values, expected_rstd.values);
}

TEST_P(FormatTest, NormsOfHeads) {
    AttentionShape shape{.batch = 1, .length = 9, .heads = 4, .kv_heads = 2, .head_channels = 12};
    const std::int64_t rows = shape.length, columns = shape.qkv_columns(), channels = shape.head_channels;
    expect_rounded_once(
        {{rows, columns}, {2, channels}, {rows, columns}, {rows, columns}}, [&](std::span<const Tensor> x) {
            shape.format = x[0].dtype();
            const Tensor of_queries = x[1].row_range(0, 1).reshape({channels});
            const Tensor of_keys = x[1].row_range(1, 1).reshape({channels});
            Owned rstd({rows, shape.heads + shape.kv_heads});
            backend_->norm_heads(shape, x[0], of_queries, of_keys, 1e-6F, x[2], rstd.tensor);
            backend_->norm_heads_backward(shape, x[0], of_queries, of_keys, rstd.tensor, x[3], {}, {}, false);
        });
}

TEST_P(FormatTest, LayerNorms) {
    expect_rounded_once({kFormatShape, {2, kFormatColumns}, kFormatShape, kFormatShape, kFormatShape, kFormatShape},
                        [&](std::span<const Tensor> x) {
                            const Tensor weight = x[1].row_range(0, 1).reshape({kFormatColumns}),
                                         bias = x[1].row_range(1, 1).reshape({kFormatColumns});
                            Owned moments({kFormatRows, 2});
                            backend_->layernorm_forward(x[0], weight, bias, 1e-5F, x[2], moments.tensor);
                            backend_->layernorm_apply(x[0], weight, bias, moments.tensor, x[3]);
                            backend_->layernorm_backward(x[0], weight, moments.tensor, x[4], x[5], x[5], {}, {}, false);
                        });
}

// Tiles of many rows, which are taken in pieces.
TEST_P(FormatTest, TheGradientsOfNormsWeightsAreNearThoseOfTheFp32Copy) {
    constexpr std::int64_t kMany = 700, kWide = 300;
    std::vector<Kept> kept = make({{kMany, kWide}, {1, kWide}, {kMany, kWide}, {kMany, kWide}});
    std::vector<Owned> gradients;
    for (const bool narrow : {false, true}) {
        const auto x = [&](std::size_t i) { return narrow ? kept[i].narrow : kept[i].wide.tensor; };
        Owned moments({kMany, 2});
        const Tensor vector = x(1).reshape({kWide});
        backend_->layernorm_forward(x(0), vector, vector, 1e-5F, x(3), moments.tensor);
        for (int i = 0; i < 2; ++i) gradients.push_back(random({kWide}, 5));
        Owned& of_weight = gradients[gradients.size() - 2];
        backend_->layernorm_backward(x(0), vector, moments.tensor, x(2), {}, x(3), of_weight.tensor,
                                     gradients.back().tensor, true);
    }
    for (std::size_t i : {0U, 1U}) {
        const std::vector<double> expected(gradients[i].values.begin(), gradients[i].values.end());
        EXPECT_LE(relative_l2(gradients[i + 2], expected), kOpTolerance);
    }
}

TEST_P(FormatTest, SwigluAndCrossEntropy) {
    std::vector<std::int32_t> targets(kFormatRows, 5);
    targets[3] = kIgnoredLabel;
    expect_rounded_once({{kFormatRows, 2 * kFormatColumns}, kFormatShape, kFormatShape, kFormatShape},
                        [&](std::span<const Tensor> x) {
                            Owned losses({kFormatRows});
                            backend_->swiglu_forward(x[0], x[2]);
                            backend_->swiglu_backward(x[0], x[1], x[0], x[1]);
                            backend_->cross_entropy_backward(x[3], integers(targets), 0.25F, {}, losses.tensor);
                        });
    std::vector<Kept> kept = make({kFormatShape});
    Owned of_narrow({kFormatRows}), of_wide({kFormatRows});
    backend_->cross_entropy_forward(kept[0].narrow, integers(targets), of_narrow.tensor);
    backend_->cross_entropy_forward(kept[0].wide.tensor, integers(targets), of_wide.tensor);
    EXPECT_EQ(of_narrow.values, of_wide.values);
}

TEST_P(FormatTest, RopeAndAttention) {
    AttentionShape shape{.batch = 2, .length = 45, .heads = 4, .kv_heads = 2, .head_channels = 12};
    const std::int64_t rows = shape.batch * shape.length, columns = shape.heads * shape.head_channels;
    const Owned table = random({shape.length, shape.head_channels}, 9);
    std::vector<std::int32_t> positions, starts;
    for (std::int64_t row = 0; row < rows; ++row) {
        positions.push_back(static_cast<std::int32_t>(row % shape.length));
        starts.push_back(row % shape.length < 20 ? 0 : 20);
    }
    expect_rounded_once({{rows, shape.qkv_columns()}, {rows, columns}}, [&](std::span<const Tensor> x) {
        shape.format = x[0].dtype();
        tensor::Arena workspace(backend_->allocate(backend_->attention_workspace_bytes(shape)).value());
        Owned log_sum_exp({shape.batch, shape.heads, shape.length});
        backend_->rope(shape, table.tensor, integers(positions), x[0], false);
        if (x[0].dtype() == DType::kF32) round(x[0]);
        backend_->attention_forward(shape, x[0], integers(starts), x[1], log_sum_exp.tensor, workspace);
    });
}

// What all gradients of a query's scores have in common comes from the probabilities there, from out in fp32. Values
// with much in common show the difference: through an out that is rounded the error is many roundings.
TEST_P(FormatTest, AttentionsGradientsAreNearThoseOfTheFp32Copy) {
    AttentionShape shape{.batch = 1, .length = 45, .heads = 4, .kv_heads = 2, .head_channels = 12};
    const std::int64_t columns = shape.heads * shape.head_channels, wide_columns = shape.qkv_columns();
    std::vector<Kept> kept = make({{45, wide_columns}, {45, columns}, {45, columns}, {45, wide_columns}});
    for (std::int64_t row = 0; row < 45; ++row) {
        for (std::int64_t c = wide_columns - shape.kv_heads * shape.head_channels; c < wide_columns; ++c)
            kept[0].wide.values[static_cast<std::size_t>(row * wide_columns + c)] += 16;
    }
    backend_->convert(kept[0].wide.tensor, kept[0].narrow);
    backend_->convert(kept[0].narrow, kept[0].wide.tensor);
    std::vector<std::int32_t> starts(45, 0);
    Owned log_sum_exp({shape.heads, shape.length});
    for (const bool narrow : {false, true}) {
        const auto x = [&](std::size_t i) { return narrow ? kept[i].narrow : kept[i].wide.tensor; };
        shape.format = x(0).dtype();
        tensor::Arena workspace(backend_->allocate(backend_->attention_workspace_bytes(shape)).value());
        backend_->attention_forward(shape, x(0), integers(starts), x(1), log_sum_exp.tensor, workspace);
        backend_->attention_backward(shape, x(0), integers(starts), x(1), log_sum_exp.tensor, x(2), x(3), workspace);
    }
    const std::vector<double> expected(kept[3].wide.values.begin(), kept[3].wide.values.end());
    backend_->convert(kept[3].narrow, kept[3].wide.tensor);
    EXPECT_LE(relative_l2(kept[3].wide, expected), half_step());
}

TEST_P(FormatTest, AttentionWithACache) {
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
            Owned wide({m, n}, 0.5F);
            const Owned before = c.wide.copy();
            backend_->matmul(a.narrow, of_a, b.narrow, of_b, c.narrow, true);
            backend_->matmul(a.narrow, of_a, b.narrow, of_b, wide.tensor, true);
            backend_->convert(c.narrow, c.wide.tensor);
            double worst = 0, worst_wide = 0;
            for (std::int64_t i = 0; i < m; ++i) {
                for (std::int64_t j = 0; j < n; ++j) {
                    double sum = 0, size = 0;
                    for (std::int64_t l = 0; l < k; ++l) {
                        const double term = a.wide[of_a ? l * m + i : i * k + l] * b.wide[of_b ? j * k + l : l * n + j];
                        sum += term;
                        size += std::abs(term);
                    }
                    const double exact = sum + before[i * n + j];
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
    const Owned b = random({70, 50}, 2);
    Owned rounded = b.copy(), c({40, 50}), expected({40, 50});
    round(rounded.tensor);
    backend_->matmul(a.narrow, false, b.tensor, false, c.tensor, false);
    backend_->matmul(a.wide.tensor, false, rounded.tensor, false, expected.tensor, false);
    EXPECT_EQ(c.values, expected.values);
}

INSTANTIATE_TEST_SUITE_P(, FormatTest,
                         ::testing::Combine(::testing::ValuesIn(tested_backends()),
                                            ::testing::Values(DType::kF16, DType::kBF16)),
                         [](const auto& test) {
                             return std::get<0>(test.param) +
                                    (std::get<1>(test.param) == DType::kF16 ? "_fp16" : "_bf16");
                         });

// An AdamW step on weights that have no masters.
class WeightsWithoutMastersTest : public ::testing::TestWithParam<std::string> {
  protected:
    static constexpr std::int64_t kCount = 3000;

    // Weights of 1 that a step moves by an eighth of the distance to the next lower number in bf16.
    std::vector<std::uint16_t> stepped(std::uint64_t seed, std::vector<std::int64_t> cuts = {}) {
        std::vector<std::uint16_t> weights(kCount, 0x3f80);
        const Owned gradients({kCount}, 1.0F), first({kCount}, 0.0F), second({kCount}, 0.0F);
        StepScalars scalars{.updates = 1};
        cuts.push_back(kCount);
        std::int64_t begin = 0;
        for (const std::int64_t end : cuts) {
            const auto part = [&](const Owned& all) {
                return Tensor(const_cast<float*>(all.values.data()) + begin, DType::kF32, {end - begin});
            };
            backend_->adamw({.learning_rate = 0x1p-11F, .beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 0, .weight_decay = 0},
                            as_tensor(scalars),
                            {.weights = Tensor(weights.data() + begin, DType::kBF16, {end - begin}),
                             .gradients = part(gradients),
                             .first_moments = part(first),
                             .second_moments = part(second),
                             .stored = {},
                             .seed = seed,
                             .first_element = begin});
            begin = end;
        }
        return weights;
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

INSTANTIATE_TEST_SUITE_P(, WeightsWithoutMastersTest, ::testing::ValuesIn(tested_backends()));

}  // namespace
}  // namespace atl::kernels
