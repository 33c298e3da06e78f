// Layer norm, biases and ReLU against naive fp64 references, on every backend.

#include <gtest/gtest.h>

#include <algorithm>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"

namespace atl::kernels {
namespace {

constexpr std::int64_t kNormRows = 50, kNormColumns = 37;  // with incomplete vectors at the end

class LayerNormTest : public ::testing::TestWithParam<std::string> {
  protected:
    struct Moments {
        double mean, rstd;
    };
    static Moments compute_moments(const double* row) {
        double mean = 0, variance = 0;
        for (std::int64_t c = 0; c < kNormColumns; ++c) mean += row[c] / kNormColumns;
        for (std::int64_t c = 0; c < kNormColumns; ++c) variance += (row[c] - mean) * (row[c] - mean) / kNormColumns;
        return {mean, 1.0 / std::sqrt(variance + 1e-5)};
    }
    std::vector<double> values(const OnDevice<>& x) const { return {x.given.begin(), x.given.end()}; }

    std::unique_ptr<Backend> backend_ = make_tested_backend(GetParam());
    OnDevice<> x_ = random(*backend_, {kNormRows, kNormColumns}, 1), weight_ = random(*backend_, {kNormColumns}, 2),
               bias_ = random(*backend_, {kNormColumns}, 3);
    OnDevice<> out_{*backend_, {kNormRows, kNormColumns}}, moments_{*backend_, {kNormRows, 2}};
};

TEST_P(LayerNormTest, ForwardIsThatOfTheDefinition) {
    std::vector<float> shifted = x_.given;
    for (float& value : shifted) value += 100.0F;  // a large mean takes digits from a careless variance
    x_.write(shifted);
    backend_->layernorm_forward(x_.tensor, weight_.tensor, bias_.tensor, 1e-5F, out_.tensor, moments_.tensor);
    const std::vector<double> x = values(x_);
    const std::vector<float> kept = moments_.read();
    std::vector<double> expected;
    for (std::int64_t row = 0; row < kNormRows; ++row) {
        const auto moments = compute_moments(x.data() + row * kNormColumns);
        EXPECT_NEAR(kept[static_cast<std::size_t>(2 * row)], moments.mean, 1e-4);
        for (std::int64_t c = 0; c < kNormColumns; ++c)
            expected.push_back((x_[row * kNormColumns + c] - moments.mean) * moments.rstd * weight_[c] + bias_[c]);
    }
    EXPECT_LE(relative_l2(out_, expected), 1e-5);  // 100 + x has lost two digits of x before
    OnDevice<> again(*backend_, {kNormRows, kNormColumns});
    backend_->layernorm_apply(x_.tensor, weight_.tensor, bias_.tensor, moments_.tensor, again.tensor);
    EXPECT_EQ(again.read(), out_.read());
}

TEST_P(LayerNormTest, ForwardIsExact) {
    backend_->layernorm_forward(x_.tensor, weight_.tensor, bias_.tensor, 1e-5F, out_.tensor, moments_.tensor);
    const std::vector<double> x = values(x_);
    std::vector<double> expected;
    for (std::int64_t row = 0; row < kNormRows; ++row) {
        const auto moments = compute_moments(x.data() + row * kNormColumns);
        for (std::int64_t c = 0; c < kNormColumns; ++c)
            expected.push_back((x_[row * kNormColumns + c] - moments.mean) * moments.rstd * weight_[c] + bias_[c]);
    }
    EXPECT_LE(relative_l2(out_, expected), kOpTolerance);
}

// A control: a variance over one channel fewer must be far off.
TEST_P(LayerNormTest, AnUnbiasedVarianceIsFarOff) {
    backend_->layernorm_forward(x_.tensor, weight_.tensor, bias_.tensor, 1e-5F, out_.tensor, moments_.tensor);
    const std::vector<double> x = values(x_);
    const double factor = std::sqrt((kNormColumns - 1.0) / kNormColumns);
    std::vector<double> wrong;
    for (std::int64_t i = 0; i < kNormRows * kNormColumns; ++i) {
        const auto moments = compute_moments(x.data() + i / kNormColumns * kNormColumns);
        wrong.push_back((x_[i] - moments.mean) * moments.rstd * factor * weight_[i % kNormColumns] +
                        bias_[i % kNormColumns]);
    }
    EXPECT_GT(relative_l2(out_, wrong), 1000 * kOpTolerance);
}

// Reference gradients come from central differences of the fp64 forward: no formula is used twice.
TEST_P(LayerNormTest, BackwardIsTheDerivative) {
    const OnDevice<> dy = random(*backend_, {kNormRows, kNormColumns}, 4),
                     residual = random(*backend_, {kNormRows, kNormColumns}, 5);
    OnDevice<> dx(*backend_, {kNormRows, kNormColumns}), dw(*backend_, {kNormColumns}, 2.0F),
        db(*backend_, {kNormColumns}, 3.0F);
    backend_->layernorm_forward(x_.tensor, weight_.tensor, bias_.tensor, 1e-5F, out_.tensor, moments_.tensor);
    backend_->layernorm_backward(x_.tensor, weight_.tensor, moments_.tensor, dy.tensor, residual.tensor, dx.tensor,
                                 dw.tensor, db.tensor, true);
    std::vector<double> x = values(x_), expected_dx, expected_dw(kNormColumns, 2.0), expected_db(kNormColumns, 3.0);
    const auto row_loss = [&](std::int64_t row) {
        const double* const xs = x.data() + row * kNormColumns;
        const auto moments = compute_moments(xs);
        double loss = 0;
        for (std::int64_t c = 0; c < kNormColumns; ++c)
            loss += dy[row * kNormColumns + c] * (xs[c] - moments.mean) * moments.rstd * weight_[c];
        return loss;
    };
    constexpr double kStep = 1e-4;
    for (std::int64_t i = 0; i < kNormRows * kNormColumns; ++i) {
        const std::int64_t row = i / kNormColumns;
        double& value = x[static_cast<std::size_t>(i)];
        const double before = value;
        const auto moments = compute_moments(x.data() + row * kNormColumns);
        value = before + kStep;
        const double above = row_loss(row);
        value = before - kStep;
        const double below = row_loss(row);
        value = before;
        expected_dx.push_back(residual[i] + (above - below) / (2 * kStep));
        expected_dw[static_cast<std::size_t>(i % kNormColumns)] += dy[i] * (before - moments.mean) * moments.rstd;
        expected_db[static_cast<std::size_t>(i % kNormColumns)] += dy[i];
    }
    EXPECT_LE(relative_l2(dx, expected_dx), kOpTolerance);
    EXPECT_LE(relative_l2(dw, expected_dw), kOpTolerance);
    EXPECT_LE(relative_l2(db, expected_db), kOpTolerance);
    OnDevice<> alone(*backend_, {kNormRows, kNormColumns});
    backend_->layernorm_backward(x_.tensor, weight_.tensor, moments_.tensor, dy.tensor, {}, alone.tensor, dw.tensor,
                                 db.tensor, false);
    for (std::size_t i = 0; i < expected_dx.size(); ++i) expected_dx[i] -= residual[static_cast<std::int64_t>(i)];
    EXPECT_LE(relative_l2(alone, expected_dx), kOpTolerance);
    for (std::size_t c = 0; c < kNormColumns; ++c) expected_db[c] -= 3.0;
    EXPECT_LE(relative_l2(db, expected_db), kOpTolerance);
}

TEST_P(LayerNormTest, BiasesAreAddedWithOrWithoutAResidual) {
    const OnDevice<> residual = random(*backend_, {kNormRows, kNormColumns}, 6);
    backend_->add_bias(x_.tensor, bias_.tensor, residual.tensor, out_.tensor);
    std::vector<double> sum, plain;
    for (std::int64_t i = 0; i < kNormRows * kNormColumns; ++i) {
        plain.push_back(x_[i] + bias_[i % kNormColumns]);
        sum.push_back(plain.back() + residual[i]);
    }
    EXPECT_LE(relative_l2(out_, sum), kOpTolerance);
    backend_->add_bias(x_.tensor, bias_.tensor, {}, x_.tensor);
    EXPECT_LE(relative_l2(x_, plain), kOpTolerance);
}

TEST_P(LayerNormTest, ReluKeepsWhatIsPositive) {
    std::vector<double> expected, expected_gradient;
    OnDevice<> gradient = random(*backend_, {kNormRows, kNormColumns}, 7);
    for (std::int64_t i = 0; i < kNormRows * kNormColumns; ++i) {
        expected.push_back(std::max(0.0, x_[i] + bias_[i % kNormColumns]));
        expected_gradient.push_back(expected.back() > 0 ? gradient[i] : 0.0);
    }
    backend_->bias_relu(x_.tensor, bias_.tensor);
    backend_->relu_backward(x_.tensor, gradient.tensor);
    EXPECT_LE(relative_l2(x_, expected), kOpTolerance);
    EXPECT_LE(relative_l2(gradient, expected_gradient), kOpTolerance);
}

TEST_P(LayerNormTest, ReluLeavesNaN) {
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    OnDevice<> x(*backend_, {2, 3}, 0.0F);
    const OnDevice<> bias(*backend_, tensor::DType::kF32, {3}, {kNaN, -1, 2});
    backend_->bias_relu(x.tensor, bias.tensor);
    const std::vector<float> out = x.read();
    for (const std::size_t row : {0U, 3U}) {
        EXPECT_TRUE(std::isnan(out[row]));
        EXPECT_EQ(out[row + 1], 0);
        EXPECT_EQ(out[row + 2], 2);
    }
}

TEST_P(LayerNormTest, RowsAreSummedWithoutLosingDigits) {
    constexpr std::int64_t kMany = 5000, kWidth = 150;
    const OnDevice<> many = random(*backend_, {kMany, kWidth}, 8);
    OnDevice<> out(*backend_, {kWidth}, 1.0F);
    std::vector<double> expected(kWidth, 1.0);
    for (std::int64_t i = 0; i < kMany * kWidth; ++i) expected[static_cast<std::size_t>(i % kWidth)] += many[i];
    backend_->sum_rows(many.tensor, out.tensor, true);
    EXPECT_LE(relative_l2(out, expected), kOpTolerance);
    for (double& value : expected) value -= 1.0;
    backend_->sum_rows(many.tensor, out.tensor, false);
    EXPECT_LE(relative_l2(out, expected), kOpTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, LayerNormTest, ::testing::ValuesIn(tested_backends()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace atl::kernels
