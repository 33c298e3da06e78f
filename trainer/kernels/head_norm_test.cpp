// RMS norms of heads against naive fp64 references, on every backend.

#include <gtest/gtest.h>

#include <array>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"

namespace atl::kernels {
namespace {

class HeadNormTest : public ::testing::TestWithParam<std::string> {
  protected:
    static constexpr AttentionShape kShape{.batch = 2, .length = 25, .heads = 4, .kv_heads = 2, .head_channels = 22};
    // A head has an incomplete vector at its end.
    static constexpr std::int64_t kRows = 50, kColumns = 176, kD = 22, kNormed = 6;
    static constexpr float kEpsilon = 1e-3F;               // large enough to be seen
    static constexpr std::int64_t kHeads = kColumns / kD;  // of a token, those of values included
    static bool is_normed(std::int64_t head) { return head % kHeads < kNormed; }
    const OnDevice<>& weight_of(std::int64_t head) const { return head % kHeads < kShape.heads ? query_ : key_; }

    static double root(const double* x) {
        double squares = 0;
        for (std::int64_t c = 0; c < kD; ++c) squares += x[c] * x[c] / kD;
        return 1.0 / std::sqrt(squares + static_cast<double>(kEpsilon));
    }
    // What a head of x becomes, weighted by what is asked of it: the loss of that head.
    double head_loss(const std::vector<double>& x, const OnDevice<>& asked, std::int64_t head) const {
        const double* const from = x.data() + head * kD;
        const double scale = root(from);
        double loss = 0;
        for (std::int64_t c = 0; c < kD; ++c) loss += asked[head * kD + c] * from[c] * scale * weight_of(head)[c];
        return loss;
    }
    void forward() {
        backend_->norm_heads(kShape, qkv_.tensor, query_.tensor, key_.tensor, kEpsilon, out_.tensor, rstd_.tensor);
    }
    void backward(const OnDevice<>& gradient, const Tensor& query_gradient, const Tensor& key_gradient,
                  bool accumulate) {
        backend_->norm_heads_backward(kShape, qkv_.tensor, query_.tensor, key_.tensor, rstd_.tensor, gradient.tensor,
                                      query_gradient, key_gradient, accumulate);
    }

    std::unique_ptr<Backend> backend_ = make_tested_backend(GetParam());
    OnDevice<> qkv_ = random(*backend_, {kRows, kColumns}, 1), query_ = random(*backend_, {kD}, 2),
               key_ = random(*backend_, {kD}, 3);
    OnDevice<> out_{*backend_, {kRows, kColumns}}, rstd_{*backend_, {kRows, kNormed}};
};

TEST_P(HeadNormTest, EachHeadOfQueryAndKeyIsNormedByItself) {
    forward();
    const std::vector<double> x(qkv_.given.begin(), qkv_.given.end());
    std::vector<double> expected, roots;
    for (std::int64_t head = 0; head < kRows * kHeads; ++head) {
        const double scale = is_normed(head) ? root(x.data() + head * kD) : 1.0;
        if (is_normed(head)) roots.push_back(scale);
        for (std::int64_t c = 0; c < kD; ++c) {
            const double weight = is_normed(head) ? weight_of(head)[c] : 1.0;
            expected.push_back(x[static_cast<std::size_t>(head * kD + c)] * scale * weight);
        }
    }
    EXPECT_LE(relative_l2(out_, expected), kOpTolerance);
    EXPECT_LE(relative_l2(rstd_, roots), kOpTolerance);
}

// Reference gradients come from central differences of the fp64 forward: no formula is used twice.
TEST_P(HeadNormTest, BackwardIsTheDerivative) {
    const OnDevice<> asked = random(*backend_, {kRows, kColumns}, 4);
    OnDevice<> gradient = random(*backend_, {kRows, kColumns}, 4), query_gradient(*backend_, {kD}, 2.0F),
               key_gradient(*backend_, {kD}, 3.0F);
    forward();
    backward(gradient, query_gradient.tensor, key_gradient.tensor, true);
    std::vector<double> x(qkv_.given.begin(), qkv_.given.end()), expected;
    std::vector<double> expected_query(kD, 2.0), expected_key(kD, 3.0);
    constexpr double kStep = 1e-4;
    for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
        const std::int64_t head = i / kD;
        if (!is_normed(head)) {
            expected.push_back(asked[i]);
            continue;
        }
        double& value = x[static_cast<std::size_t>(i)];
        const double before = value;
        const bool of_query = head % kHeads < kShape.heads;
        (of_query ? expected_query : expected_key)[static_cast<std::size_t>(i % kD)] +=
            asked[i] * before * root(x.data() + head * kD);
        value = before + kStep;
        const double above = head_loss(x, asked, head);
        value = before - kStep;
        const double below = head_loss(x, asked, head);
        value = before;
        expected.push_back((above - below) / (2 * kStep));
    }
    EXPECT_LE(relative_l2(gradient, expected), kOpTolerance);
    EXPECT_LE(relative_l2(query_gradient, expected_query), kOpTolerance);
    EXPECT_LE(relative_l2(key_gradient, expected_key), kOpTolerance);
}

TEST_P(HeadNormTest, WeightGradientsAreOverwrittenOrLeftOut) {
    OnDevice<> with = random(*backend_, {kRows, kColumns}, 4), without = random(*backend_, {kRows, kColumns}, 4);
    OnDevice<> query_gradient(*backend_, {kD}, 0.0F), key_gradient(*backend_, {kD}, 0.0F), query_again(*backend_, {kD}),
        key_again(*backend_, {kD});
    forward();
    backward(without, {}, {}, true);
    backward(with, query_gradient.tensor, key_gradient.tensor, true);
    EXPECT_EQ(with.read(), without.read());
    EXPECT_NE(with.read(), with.given);
    with.write(with.given);
    backward(with, query_again.tensor, key_again.tensor, false);
    EXPECT_EQ(query_again.read(), query_gradient.read());
    EXPECT_EQ(key_again.read(), key_gradient.read());
}

TEST_P(HeadNormTest, TheBitsDoNotDependOnTheNumberOfThreads) {
    const auto outcome = [](int threads) {
        const auto backend = make_tested_backend(GetParam(), threads);
        const OnDevice<> qkv = random(*backend, {kRows, kColumns}, 1), query = random(*backend, {kD}, 2),
                         key = random(*backend, {kD}, 3), gradient = random(*backend, {kRows, kColumns}, 4);
        const OnDevice<> out(*backend, {kRows, kColumns}), rstd(*backend, {kRows, kNormed});
        const OnDevice<> query_gradient(*backend, {kD}), key_gradient(*backend, {kD});
        backend->norm_heads(kShape, qkv.tensor, query.tensor, key.tensor, kEpsilon, out.tensor, rstd.tensor);
        backend->norm_heads_backward(kShape, qkv.tensor, query.tensor, key.tensor, rstd.tensor, gradient.tensor,
                                     query_gradient.tensor, key_gradient.tensor, false);
        return std::array{out.read(), gradient.read(), query_gradient.read(), key_gradient.read()};
    };
    EXPECT_EQ(outcome(5), outcome(2));
}

// A control: one norm over all heads of a token is far off.
TEST_P(HeadNormTest, OneNormOverAllHeadsIsFarOff) {
    forward();
    const std::vector<float> out = out_.read();
    std::vector<double> wrong;
    for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
        const std::int64_t token = i / kColumns * kColumns, queries = kShape.heads * kD;
        double squares = 0;
        for (std::int64_t c = 0; c < queries; ++c) squares += std::pow(qkv_[token + c], 2) / queries;
        const double scale = 1.0 / std::sqrt(squares + static_cast<double>(kEpsilon));
        wrong.push_back(i - token < queries ? qkv_[i] * scale * query_[i % kD] : out[static_cast<std::size_t>(i)]);
    }
    EXPECT_GT(relative_l2(out_, wrong), 1000 * kOpTolerance);
}

TEST_P(HeadNormTest, WeightsInAStorageFormatCountAsTheirFp32Copies) {
    forward();
    for (const tensor::DType dtype : {tensor::DType::kF16, tensor::DType::kBF16}) {
        const std::vector<std::uint16_t> unset(kD);
        const auto query = halves(*backend_, dtype, {kD}, unset), key = halves(*backend_, dtype, {kD}, unset);
        backend_->convert(query_.tensor, query.tensor);
        backend_->convert(key_.tensor, key.tensor);
        OnDevice<> out(*backend_, {kRows, kColumns}), wide_query(*backend_, {kD}), wide_key(*backend_, {kD}),
            wide_out(*backend_, {kRows, kColumns});
        backend_->convert(query.tensor, wide_query.tensor);
        backend_->convert(key.tensor, wide_key.tensor);
        backend_->norm_heads(kShape, qkv_.tensor, query.tensor, key.tensor, kEpsilon, out.tensor, rstd_.tensor);
        backend_->norm_heads(kShape, qkv_.tensor, wide_query.tensor, wide_key.tensor, kEpsilon, wide_out.tensor,
                             rstd_.tensor);
        EXPECT_EQ(out.read(), wide_out.read());
    }
}

INSTANTIATE_TEST_SUITE_P(All, HeadNormTest, ::testing::ValuesIn(tested_backends()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace atl::kernels
