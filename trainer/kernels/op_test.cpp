// Operations but products and attention against naive fp64 references, on every backend. Sizes are chosen with
// incomplete vectors at the end.

#include <gtest/gtest.h>

#include <array>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"

namespace atl::kernels {
namespace {

class OpTest : public ::testing::TestWithParam<std::string> {
  protected:
    std::unique_ptr<Backend> backend_ = make_tested_backend(GetParam());
};

struct Norm {
    static constexpr std::int64_t kRows = 50, kColumns = 37;
    static constexpr double kEpsilon = 1e-5;
    OnDevice<> x, weight;

    explicit Norm(Backend& backend)
        : x(random(backend, {kRows, kColumns}, 1)), weight(random(backend, {kColumns}, 2)) {}

    std::vector<double> rstd(const std::vector<double>& from) const {
        std::vector<double> values;
        for (std::int64_t row = 0; row < kRows; ++row) {
            double squares = 0;
            for (std::int64_t c = 0; c < kColumns; ++c)
                squares += std::pow(from[static_cast<std::size_t>(row * kColumns + c)], 2);
            values.push_back(1.0 / std::sqrt(squares / kColumns + kEpsilon));
        }
        return values;
    }
    std::vector<double> out(const std::vector<double>& from) const {
        std::vector<double> values, roots = rstd(from);
        for (std::size_t i = 0; i < from.size(); ++i) {
            values.push_back(from[i] * roots[i / kColumns] * weight[static_cast<std::int64_t>(i % kColumns)]);
        }
        return values;
    }
};

TEST_P(OpTest, RmsNormForwardAndItsFusionWithTheResidual) {
    const Norm norm(*backend_);
    const OnDevice<> delta = random(*backend_, {Norm::kRows, Norm::kColumns}, 3);
    OnDevice<> out(*backend_, {Norm::kRows, Norm::kColumns}), sum(*backend_, {Norm::kRows, Norm::kColumns}),
        rstd(*backend_, {Norm::kRows});
    const std::vector<double> x(norm.x.given.begin(), norm.x.given.end());
    std::vector<double> added;
    for (std::size_t i = 0; i < x.size(); ++i) added.push_back(x[i] + static_cast<double>(delta.given[i]));

    backend_->rmsnorm_forward(norm.x.tensor, norm.weight.tensor, 1e-5F, out.tensor, rstd.tensor);
    EXPECT_LE(relative_l2(out, norm.out(x)), kOpTolerance);
    EXPECT_LE(relative_l2(rstd, norm.rstd(x)), kOpTolerance);
    OnDevice<> again(*backend_, {Norm::kRows, Norm::kColumns});
    backend_->rmsnorm_apply(norm.x.tensor, norm.weight.tensor, rstd.tensor, again.tensor);
    EXPECT_EQ(again.read(), out.read());
    backend_->add_rmsnorm_forward(norm.x.tensor, delta.tensor, norm.weight.tensor, 1e-5F, sum.tensor, out.tensor,
                                  rstd.tensor);
    EXPECT_LE(relative_l2(sum, added), kOpTolerance);
    EXPECT_LE(relative_l2(out, norm.out(added)), kOpTolerance);
}

// Reference gradients come from central differences of the fp64 forward: no formula is used twice.
TEST_P(OpTest, RmsNormBackwardIsTheDerivative) {
    const Norm norm(*backend_);
    const OnDevice<> dy = random(*backend_, {Norm::kRows, Norm::kColumns}, 4),
                     residual = random(*backend_, {Norm::kRows, Norm::kColumns}, 5);
    OnDevice<> out(*backend_, {Norm::kRows, Norm::kColumns}), rstd(*backend_, {Norm::kRows}),
        dx(*backend_, {Norm::kRows, Norm::kColumns});
    OnDevice<> dw(*backend_, {Norm::kColumns}, 2.0F);
    backend_->rmsnorm_forward(norm.x.tensor, norm.weight.tensor, 1e-5F, out.tensor, rstd.tensor);
    backend_->rmsnorm_backward(norm.x.tensor, norm.weight.tensor, rstd.tensor, dy.tensor, residual.tensor, dx.tensor,
                               dw.tensor, true);
    std::vector<double> x(norm.x.given.begin(), norm.x.given.end()), expected_dx, expected_dw(Norm::kColumns, 2.0);
    constexpr double kStep = 1e-4;
    const auto row_loss = [&](std::size_t row) {
        double squares = 0, loss = 0;
        for (std::size_t c = 0; c < Norm::kColumns; ++c) squares += std::pow(x[row * Norm::kColumns + c], 2);
        const double root = 1.0 / std::sqrt(squares / Norm::kColumns + Norm::kEpsilon);
        for (std::size_t c = 0; c < Norm::kColumns; ++c) {
            const auto at = static_cast<std::int64_t>(row * Norm::kColumns + c);
            loss += dy[at] * x[static_cast<std::size_t>(at)] * root * norm.weight[static_cast<std::int64_t>(c)];
        }
        return loss;
    };
    const std::vector<double> roots = norm.rstd(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double value = x[i];
        x[i] = value + kStep;
        const double above = row_loss(i / Norm::kColumns);
        x[i] = value - kStep;
        const double below = row_loss(i / Norm::kColumns);
        x[i] = value;
        const auto at = static_cast<std::int64_t>(i);
        expected_dx.push_back(residual[at] + (above - below) / (2 * kStep));
        expected_dw[i % Norm::kColumns] += dy[at] * value * roots[i / Norm::kColumns];
    }
    EXPECT_LE(relative_l2(dx, expected_dx), kOpTolerance);
    EXPECT_LE(relative_l2(dw, expected_dw), kOpTolerance);
}

TEST_P(OpTest, SwigluForwardAndBackward) {
    constexpr std::int64_t kRows = 3, kF = 45;
    const OnDevice<> gate_up = random(*backend_, {kRows, 2 * kF}, 1, 3.0F), dy = random(*backend_, {kRows, kF}, 2);
    OnDevice<> out(*backend_, {kRows, kF}), again(*backend_, {kRows, kF}), gradient(*backend_, {kRows, 2 * kF});
    backend_->swiglu_forward(gate_up.tensor, out.tensor);
    backend_->swiglu_backward(gate_up.tensor, dy.tensor, gradient.tensor, again.tensor);
    std::vector<double> expected, expected_gradient(static_cast<std::size_t>(kRows * 2 * kF));
    for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t c = 0; c < kF; ++c) {
            const double gate = gate_up[row * 2 * kF + c], up = gate_up[row * 2 * kF + kF + c];
            const double s = 1.0 / (1.0 + std::exp(-gate)), d = dy[row * kF + c];
            expected.push_back(gate * s * up);
            expected_gradient[static_cast<std::size_t>(row * 2 * kF + c)] = d * up * (s + gate * s * (1.0 - s));
            expected_gradient[static_cast<std::size_t>(row * 2 * kF + kF + c)] = d * gate * s;
        }
    }
    EXPECT_LE(relative_l2(out, expected), kOpTolerance);
    EXPECT_LE(relative_l2(again, expected), kOpTolerance);
    EXPECT_LE(relative_l2(gradient, expected_gradient), kOpTolerance);
}

TEST_P(OpTest, CrossEntropyAndItsGradientLeaveOutIgnoredLabels) {
    constexpr std::int64_t kRows = 4, kV = 101;
    OnDevice<> logits = random(*backend_, {kRows, kV}, 1, 4.0F), losses(*backend_, {kRows}),
               backward_losses(*backend_, {kRows});
    std::vector<std::int32_t> targets = {3, kIgnoredLabel, 100, 0};
    std::vector<double> expected, gradient;
    for (std::int64_t row = 0; row < kRows; ++row) {
        double total = 0;
        for (std::int64_t v = 0; v < kV; ++v) total += std::exp(logits[row * kV + v]);
        const std::int32_t target = targets[static_cast<std::size_t>(row)];
        const bool counted = target != kIgnoredLabel;
        expected.push_back(counted ? std::log(total) - logits[row * kV + target] : 0.0);
        for (std::int64_t v = 0; v < kV; ++v) {
            gradient.push_back(counted ? 0.25 * (std::exp(logits[row * kV + v]) / total - (v == target ? 1.0 : 0.0))
                                       : 0.0);
        }
    }
    backend_->cross_entropy_forward(logits.tensor, integers(*backend_, targets).tensor, losses.tensor);
    backend_->cross_entropy_backward(logits.tensor, integers(*backend_, targets).tensor, 0.0625F,
                                     one_number(*backend_, 4).tensor, backward_losses.tensor);
    EXPECT_LE(relative_l2(losses, expected), kOpTolerance);
    EXPECT_LE(relative_l2(backward_losses, expected), kOpTolerance);
    EXPECT_LE(relative_l2(logits, gradient), kOpTolerance);
}

// Controls: a mean over one channel fewer, gate and up exchanged, labels off by one; they must be far off.
TEST_P(OpTest, WrongNormsActivationsAndLabelsAreFarOff) {
    const Norm norm(*backend_);
    std::vector<double> x(norm.x.given.begin(), norm.x.given.end()), wrong = norm.out(x);
    for (double& value : wrong) value *= std::sqrt((Norm::kColumns - 1.0) / Norm::kColumns);
    OnDevice<> out(*backend_, {Norm::kRows, Norm::kColumns}), rstd(*backend_, {Norm::kRows});
    backend_->rmsnorm_forward(norm.x.tensor, norm.weight.tensor, 1e-5F, out.tensor, rstd.tensor);
    EXPECT_GT(relative_l2(out, wrong), 1000 * kOpTolerance);

    const OnDevice<> gate_up = random(*backend_, {1, 90}, 1, 3.0F);
    OnDevice<> activated(*backend_, {1, 45});
    std::vector<double> exchanged;
    for (std::int64_t c = 0; c < 45; ++c) {
        exchanged.push_back(gate_up[c] * gate_up[45 + c] / (1 + std::exp(-gate_up[45 + c])));
    }
    backend_->swiglu_forward(gate_up.tensor, activated.tensor);
    EXPECT_GT(relative_l2(activated, exchanged), 1000 * kOpTolerance);

    const OnDevice<> logits = random(*backend_, {1, 101}, 1, 4.0F);
    OnDevice<> loss(*backend_, {1});
    std::vector<std::int32_t> target = {3};
    double total = 0;
    for (std::int64_t v = 0; v < 101; ++v) total += std::exp(logits[v]);
    backend_->cross_entropy_forward(logits.tensor, integers(*backend_, target).tensor, loss.tensor);
    EXPECT_GT(relative_l2(loss, {std::log(total) - logits[4]}), 1000 * kOpTolerance);
}

TEST_P(OpTest, CrossEntropyStaysFiniteForHugeLogits) {
    std::vector<float> huge(40, -3e4F);
    huge[7] = 3e4F;
    OnDevice<> logits(*backend_, {1, 40}), losses(*backend_, {1});
    logits.write(huge);
    std::vector<std::int32_t> target = {7};
    backend_->cross_entropy_backward(logits.tensor, integers(*backend_, target).tensor, 1.0F, {}, losses.tensor);
    EXPECT_NEAR(losses.read()[0], 0.0F, 1e-6F);
    EXPECT_NEAR(logits.read()[7], 0.0F, 1e-6F);
}

TEST_P(OpTest, DropoutKeepsItsShareAndTheSameElementsWhereverARangeBegins) {
    constexpr std::int64_t kRows = 37, kColumns = 1003;
    const OnDevice<> x = random(*backend_, {kRows, kColumns}, 3);
    OnDevice<> whole(*backend_, {kRows, kColumns}), again(*backend_, {kRows, kColumns}),
        other(*backend_, {kRows, kColumns});
    const Backend::Dropout dropout{.probability = 0.3, .seed = 5, .stream = 0xfedcba9876543210, .first_element = 11};
    backend_->dropout(dropout, x.tensor, whole.tensor);
    const std::vector<float> expected = whole.read();
    std::int64_t kept = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (expected[i] != 0) ++kept;
        EXPECT_TRUE(expected[i] == 0 || expected[i] == x.given[i] * static_cast<float>(1 / 0.7)) << i;
    }
    EXPECT_NEAR(static_cast<double>(kept) / (kRows * kColumns), 0.7, 0.01);  // 4 standard deviations
    for (std::int64_t row = 0; row < kRows; ++row) {
        Backend::Dropout part = dropout;
        part.first_element += row * kColumns;
        backend_->dropout(part, x.tensor.row_range(row, 1), again.tensor.row_range(row, 1));
    }
    EXPECT_EQ(again.read() == expected, true);
    // For every instruction set the same.
    const auto baseline = make_cpu_backend(1, "baseline").value();
    OnDevice<> of_baseline = random(*baseline, {kRows, kColumns}, 3);
    baseline->dropout(dropout, of_baseline.tensor, of_baseline.tensor);
    EXPECT_EQ(of_baseline.read() == expected, true);
    for (const Backend::Dropout& another : {Backend::Dropout{0.3, 6, dropout.stream, 11}, {0.3, 5, 1, 11}}) {
        backend_->dropout(another, x.tensor, other.tensor);
        EXPECT_EQ(other.read() == expected, false);
    }
}

TEST_P(OpTest, EmbeddingAddsUpRepeatedTokens) {
    const OnDevice<> table = random(*backend_, {5, 9}, 1), dy = random(*backend_, {4, 9}, 2);
    const OnDevice<std::int32_t> ids = integers(*backend_, {2, 0, 2, 4});
    const OnDevice<std::int32_t> by_id = integers(*backend_, {1, 0, 2, 3});
    OnDevice<> out(*backend_, {4, 9}), gradient(*backend_, {5, 9});
    backend_->embedding_forward(table.tensor, ids.tensor, out.tensor);
    backend_->embedding_backward(ids.tensor, by_id.tensor, dy.tensor, gradient.tensor, false);
    const std::vector<float> rows = out.read(), sums = gradient.read();
    for (std::int64_t c = 0; c < 9; ++c) {
        const auto at = static_cast<std::size_t>(c);
        EXPECT_EQ(rows[18 + at], table.given[18 + at]);
        EXPECT_NEAR(sums[18 + at], dy[c] + dy[18 + c], 1e-6);
        EXPECT_EQ(sums[9 + at], 0.0);
    }
    backend_->embedding_backward(ids.tensor, by_id.tensor, dy.tensor, gradient.tensor, true);
    EXPECT_NEAR(gradient.read()[18], 2 * (dy[0] + dy[18]), 1e-6);
}

TEST_P(OpTest, SumsKeepTheirAccuracyOverAMillionElements) {
    const OnDevice<> x = random(*backend_, {1'000'003}, 1);
    double sum = 0, squares = 0;
    for (const float value : x.given) {
        sum += static_cast<double>(value);
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const OnDevice<double> summed = one_number(*backend_, 5), squared = one_number(*backend_, 5);
    backend_->sum_of_squares(x.tensor, squared.tensor, false);
    backend_->sum(x.tensor, summed.tensor, true);
    EXPECT_NEAR(squared.read()[0] / squares, 1.0, 1e-7);
    EXPECT_NEAR(summed.read()[0], 5 + sum, 1e-3);
}

TEST_P(OpTest, EveryHalfWidensAndNarrowsBackToItself) {
    for (const auto half : {tensor::DType::kF16, tensor::DType::kBF16}) {
        std::vector<std::uint16_t> every(65536);
        for (std::size_t i = 0; i < every.size(); ++i) every[i] = static_cast<std::uint16_t>(i);
        const OnDevice<std::uint16_t> all = halves(*backend_, half, {65536}, every);
        const OnDevice<std::uint16_t> back = halves(*backend_, half, {65536}, std::vector<std::uint16_t>(65536));
        const OnDevice<> wide(*backend_, {65536});
        backend_->convert(all.tensor, wide.tensor);
        backend_->convert(wide.tensor, back.tensor);
        const std::vector<float> values = wide.read();
        const std::vector<std::uint16_t> bits = back.read();
        for (std::size_t i = 0; i < every.size(); ++i) {
            if (std::isnan(values[i])) continue;
            ASSERT_EQ(bits[i], every[i]) << i;
        }
        EXPECT_EQ(values[half == tensor::DType::kF16 ? 0x3c00 : 0x3f80], 1.0F);
        EXPECT_EQ(values[half == tensor::DType::kF16 ? 0x0001 : 0x0080],
                  half == tensor::DType::kF16 ? 0x1p-24F : 0x1p-126F);
    }
}

TEST_P(OpTest, NarrowingRoundsToNearestEvenAndOverflowsToInfinity) {
    std::vector<float> values = {1.0F + 0x1p-11F, 1.0F + 0x1p-10F + 0x1p-11F, 65519.0F, 65520.0F, 0x1p-25F, 0x1.8p-24F};
    values.push_back(std::nanf(""));
    const std::vector<std::uint16_t> expected = {0x3c00, 0x3c02, 0x7bff, 0x7c00, 0x0000, 0x0002};
    const auto count = static_cast<std::int64_t>(values.size());
    OnDevice<> wide(*backend_, {count});
    wide.write(values);
    const OnDevice<std::uint16_t> narrow =
        halves(*backend_, tensor::DType::kF16, {count}, std::vector<std::uint16_t>(values.size()));
    backend_->convert(wide.tensor, narrow.tensor);
    const std::vector<std::uint16_t> bits = narrow.read();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(bits[i], expected[i]) << values[i];
    EXPECT_GT(bits.back() & 0x7fff, 0x7c00) << "not a number stays not a number";
}

TEST_P(OpTest, AdamWOverAThousandStepsIsThatOfTheFormula) {
    constexpr std::int64_t kCount = 77;
    OnDevice<> weights = random(*backend_, {kCount}, 1), first(*backend_, {kCount}, 0.0F),
               second(*backend_, {kCount}, 0.0F);
    std::vector<double> w(weights.given.begin(), weights.given.end()), m(kCount, 0.0), v(kCount, 0.0);
    const AdamWStep step{.learning_rate = 1e-3F, .beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 1e-8F, .weight_decay = 0.1F};
    const double b1 = static_cast<double>(step.beta1), b2 = static_cast<double>(step.beta2);
    const double rate = static_cast<double>(step.learning_rate), decay = static_cast<double>(step.weight_decay);
    for (int number = 1; number <= 1000; ++number) {
        const OnDevice<> gradient = random(*backend_, {kCount}, static_cast<unsigned>(number));
        const OnDevice<StepScalars> numbers =
            scalars(*backend_, {.factor = 0.5, .updates = static_cast<double>(number)});
        backend_->adamw(step, numbers.tensor, {weights.tensor, gradient.tensor, first.tensor, second.tensor, {}});
        for (std::size_t i = 0; i < kCount; ++i) {
            const double g = 0.5 * static_cast<double>(gradient.given[i]);
            m[i] = b1 * m[i] + (1 - b1) * g;
            v[i] = b2 * v[i] + (1 - b2) * g * g;
            w[i] = w[i] * (1 - rate * decay) -
                   rate * (m[i] / (1 - std::pow(b1, number))) / (std::sqrt(v[i] / (1 - std::pow(b2, number))) + 1e-8);
        }
    }
    EXPECT_LE(relative_l2(weights, w), 1e-6);
}

TEST_P(OpTest, SgdWithMomentumDecaysAndSteps) {
    OnDevice<> weights(*backend_, {2}, 1.0F), gradients(*backend_, {2}, 2.0F), momenta(*backend_, {2}, 1.0F);
    const SgdStep step{.learning_rate = 0.1F, .momentum = 0.5F, .weight_decay = 0.2F};
    backend_->sgd(step, scalars(*backend_, {.factor = 0.25, .updates = 1}).tensor,
                  {weights.tensor, gradients.tensor, momenta.tensor, {}, {}});
    EXPECT_FLOAT_EQ(momenta.read()[1], 1.0F);
    EXPECT_FLOAT_EQ(weights.read()[1], 0.98F - 0.1F);
}

TEST_P(OpTest, AStepThatIsNoneLeavesEverythingAsItIs) {
    OnDevice<> weights(*backend_, {2}, 1.0F), gradients(*backend_, {2}, HUGE_VALF), first(*backend_, {2}, 3.0F),
        second(*backend_, {2}, 4.0F);
    const OptimizerRange range{weights.tensor, gradients.tensor, first.tensor, second.tensor, {}};
    const OnDevice<StepScalars> none = scalars(*backend_, {.is_update = 0, .updates = 1});
    backend_->adamw({.learning_rate = 0.1F, .beta1 = 0.9F, .beta2 = 0.9F, .epsilon = 1, .weight_decay = 0.5F},
                    none.tensor, range);
    backend_->sgd({.learning_rate = 0.1F, .momentum = 0.5F, .weight_decay = 0.5F}, none.tensor, range);
    EXPECT_EQ(weights.read(), std::vector<float>(2, 1.0F));
    EXPECT_EQ(first.read(), std::vector<float>(2, 3.0F));
    EXPECT_EQ(second.read(), std::vector<float>(2, 4.0F));
}

// What rotates, and by what: three tokens of unequal positions, a head of keys, values beside them.
struct Rotation {
    static constexpr AttentionShape kShape{.batch = 1, .length = 3, .heads = 2, .kv_heads = 1, .head_channels = 38};
    static constexpr std::int64_t kHalf = kShape.head_channels / 2;
    static constexpr std::int64_t kColumns = (kShape.heads + 2 * kShape.kv_heads) * kShape.head_channels;
    OnDevice<> qkv, table;
    OnDevice<std::int32_t> positions;

    explicit Rotation(Backend& backend)
        : qkv(random(backend, {3, kColumns}, 1)),
          table(backend, {4, kShape.head_channels}),
          positions(integers(backend, {0, 3, 1})) {
        std::vector<float> turns;
        for (std::int64_t position = 0; position < 4; ++position) {
            const auto angle = [&](std::int64_t i) {
                return static_cast<double>(position) * std::pow(100.0, static_cast<double>(-i) / 19.0);
            };
            for (std::int64_t i = 0; i < kHalf; ++i) turns.push_back(static_cast<float>(std::cos(angle(i))));
            for (std::int64_t i = 0; i < kHalf; ++i) turns.push_back(static_cast<float>(std::sin(angle(i))));
        }
        table.write(turns);
    }
    // Each pair (i, i + D/2) of a query's or key's channels turned by its angle, or back, or its `neighbours` 2i and 2i
    // + 1.
    std::vector<double> rotated(bool back, bool neighbours = false) const {
        std::vector<double> out(qkv.given.begin(), qkv.given.end());
        for (std::size_t token = 0; token < positions.given.size(); ++token) {
            for (std::int64_t head = 0; head < kShape.heads + kShape.kv_heads; ++head) {
                for (std::int64_t i = 0; i < kHalf; ++i) {
                    const std::int64_t begin = static_cast<std::int64_t>(token) * kColumns + head * 2 * kHalf;
                    const std::int64_t first = begin + (neighbours ? 2 * i : i);
                    const std::int64_t second = first + (neighbours ? 1 : kHalf);
                    const std::int64_t at = positions.given[token] * 2 * kHalf + i;
                    const double cosine = table[at], sine = back ? -table[at + kHalf] : table[at + kHalf];
                    out[static_cast<std::size_t>(first)] = qkv[first] * cosine - qkv[second] * sine;
                    out[static_cast<std::size_t>(second)] = qkv[second] * cosine + qkv[first] * sine;
                }
            }
        }
        return out;
    }
};

TEST_P(OpTest, RopeTurnsEachPairOfChannelsByItsAngle) {
    Rotation rotation(*backend_);
    const std::vector<double> forward = rotation.rotated(false), neighbours = rotation.rotated(false, true);
    backend_->rope(Rotation::kShape, rotation.table.tensor, rotation.positions.tensor, rotation.qkv.tensor, false);
    EXPECT_LE(relative_l2(rotation.qkv, forward), kOpTolerance);
    EXPECT_GT(relative_l2(rotation.qkv, neighbours), 1000 * kOpTolerance) << "control: the interleaved rotation";
    // The derivative of a rotation is the rotation back, applied to the gradient.
    rotation.qkv.write(rotation.qkv.read());
    const std::vector<double> backward = rotation.rotated(true);
    backend_->rope(Rotation::kShape, rotation.table.tensor, rotation.positions.tensor, rotation.qkv.tensor, true);
    EXPECT_LE(relative_l2(rotation.qkv, backward), kOpTolerance);
}

// Numbers whose sum depends on the order of the additions: in fp32 1e8 + 1 is 1e8.
TEST_P(OpTest, PiecesAreAddedInPairsThenPairsOfPairs) {
    constexpr std::int64_t kCount = 10001;
    for (const std::int64_t piece_count : {1, 2, 3, 5, 8}) {
        OnDevice<> pieces(*backend_, {piece_count, kCount}), sum(*backend_, {kCount});
        std::vector<float> expected(kCount), all(pieces.given.size());
        for (std::int64_t i = 0; i < kCount; ++i) {
            std::vector<float> terms;
            for (std::int64_t piece = 0; piece < piece_count; ++piece) {
                const float small = static_cast<float>(i % 1000 * (piece + 1)) * 0.37F;
                terms.push_back(piece % 2 == 1 ? small : piece % 4 == 0 ? 1e8F : -1e8F);
                all[static_cast<std::size_t>(piece * kCount + i)] = terms.back();
            }
            for (std::size_t stride = 1; stride < terms.size(); stride *= 2) {
                for (std::size_t at = 0; at + stride < terms.size(); at += 2 * stride) terms[at] += terms[at + stride];
            }
            expected[static_cast<std::size_t>(i)] = terms[0];
        }
        pieces.write(all);
        backend_->sum_pieces(pieces.tensor, sum.tensor);
        EXPECT_EQ(sum.read() == expected, true) << piece_count << " pieces";
    }
}

TEST_P(OpTest, AStepIsFinishedOnTheDeviceAsOnTheHost) {
    const StepRules rules{.nominal_targets = 8, .targets = 3, .norm_max = 0.125, .scales_loss = true};
    for (const double squares : {4.0, 1e-9, HUGE_VAL}) {
        StepScalars expected{
            .loss = 1, .gradient_squares = squares, .updates = 7, .loss_scale = 16, .good_steps = 1999};
        const OnDevice<StepScalars> there = scalars(*backend_, expected);
        backend_->finish_step(rules, there.tensor);
        finish_step(rules, expected);
        const StepScalars got = there.read()[0];
        EXPECT_DOUBLE_EQ(got.norm, expected.norm) << squares;
        EXPECT_DOUBLE_EQ(got.factor, expected.factor) << squares;
        const auto counts = [](const StepScalars& x) {
            return std::array{x.is_update, x.updates, x.loss_scale, x.good_steps, x.skipped, x.has_failed};
        };
        EXPECT_EQ(counts(got), counts(expected)) << squares;
    }
}

INSTANTIATE_TEST_SUITE_P(All, OpTest, ::testing::ValuesIn(tested_backends()),
                         [](const auto& instance) { return instance.param; });

TEST(BackendTest, EachGpuDeviceThatIsNotBuiltIsRefused) {
    for (const char* device : {"cuda", "hip"}) {
        if (device == gpu_device()) continue;
        const auto backend = make_gpu_backend(device, 0);
        ASSERT_FALSE(backend.ok()) << device;
        EXPECT_EQ(backend.error().code, ErrorCode::kInvalidArgument) << device;
        EXPECT_EQ(backend.error().field, "device");
    }
}

TEST(BackendTest, AnUnknownInstructionSetIsRefused) {
    EXPECT_EQ(make_cpu_backend(1, "mmx").error().field, "instruction_set");
    EXPECT_EQ(make_cpu_backend(0).error().field, "threads");
}

TEST(BackendTest, TheEnvironmentChoosesTheInstructionSet) {
    const std::string narrowest = cpu_instruction_sets().back();
    ASSERT_EQ(::setenv("ATOLL_INSTRUCTION_SET", narrowest.c_str(), 1), 0);
    const auto chosen = make_cpu_backend(1);
    ASSERT_EQ(::setenv("ATOLL_INSTRUCTION_SET", "avx1024", 1), 0);
    const auto unknown = make_cpu_backend(1);
    ASSERT_EQ(::unsetenv("ATOLL_INSTRUCTION_SET"), 0);
    ASSERT_TRUE(chosen.ok());
    EXPECT_TRUE((*chosen)->name().starts_with("cpu (" + narrowest + ", ")) << (*chosen)->name();
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().field, "ATOLL_INSTRUCTION_SET");
}

TEST(BackendTest, EachInstructionSetHasItsLibraryOfProducts) {
    for (const std::string& set : cpu_instruction_sets()) {
        const std::string name = make_cpu_backend(1, set).value()->name();
        const std::string library = set == "avx512" ? "oneDNN " : "OpenBLAS ";
        EXPECT_TRUE(name.starts_with("cpu (" + set + ", " + library)) << name;
    }
    EXPECT_EQ(cpu_kernels().value(), make_cpu_backend(1).value()->name());
}

TEST(BackendTest, MemoryThatCannotBeHadIsAnError) {
    const auto backend = make_cpu_backend(1).value();
    const auto memory = backend->allocate(std::int64_t{1} << 60);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace atl::kernels
