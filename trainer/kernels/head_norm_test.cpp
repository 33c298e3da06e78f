// RMS norms of heads against naive fp64 references, for every instruction set of this machine and the GPU's kernels.

#include <gtest/gtest.h>

#include <algorithm>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/owned_tensor.h"

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
    const Owned& weight_of(std::int64_t head) const { return head % kHeads < kShape.heads ? query_ : key_; }

    static double root(const double* x) {
        double squares = 0;
        for (std::int64_t c = 0; c < kD; ++c) squares += x[c] * x[c] / kD;
        return 1.0 / std::sqrt(squares + static_cast<double>(kEpsilon));
    }
    // What a head of x becomes, weighted by what is asked of it: the loss of that head.
    double head_loss(const std::vector<double>& x, const Owned& asked, std::int64_t head) const {
        const double* const from = x.data() + head * kD;
        const double scale = root(from);
        double loss = 0;
        for (std::int64_t c = 0; c < kD; ++c) loss += asked[head * kD + c] * from[c] * scale * weight_of(head)[c];
        return loss;
    }
    void forward() {
        backend_->norm_heads(kShape, qkv_.tensor, query_.tensor, key_.tensor, kEpsilon, out_.tensor, rstd_.tensor);
    }
    void backward(const Owned& gradient, const Tensor& query_gradient, const Tensor& key_gradient, bool accumulate) {
        backend_->norm_heads_backward(kShape, qkv_.tensor, query_.tensor, key_.tensor, rstd_.tensor, gradient.tensor,
                                      query_gradient, key_gradient, accumulate);
    }

    std::unique_ptr<Backend> backend_ = make_tested_backend(GetParam());
    Owned qkv_ = random({kRows, kColumns}, 1), query_ = random({kD}, 2), key_ = random({kD}, 3);
    Owned out_{{kRows, kColumns}}, rstd_{{kRows, kNormed}};
};

TEST_P(HeadNormTest, EachHeadOfQueryAndKeyIsNormedByItself) {
    forward();
    const std::vector<double> x(qkv_.values.begin(), qkv_.values.end());
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
    const Owned asked = random({kRows, kColumns}, 4);
    Owned gradient = random({kRows, kColumns}, 4), query_gradient({kD}, 2.0F), key_gradient({kD}, 3.0F);
    forward();
    backward(gradient, query_gradient.tensor, key_gradient.tensor, true);
    std::vector<double> x(qkv_.values.begin(), qkv_.values.end()), expected;
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
    const Owned start = random({kRows, kColumns}, 4);
    Owned with = random({kRows, kColumns}, 4), without = random({kRows, kColumns}, 4);
    Owned query_gradient({kD}, 0.0F), key_gradient({kD}, 0.0F), query_again({kD}), key_again({kD});
    forward();
    backward(without, {}, {}, true);
    backward(with, query_gradient.tensor, key_gradient.tensor, true);
    EXPECT_EQ(with.values, without.values);
    EXPECT_NE(with.values, start.values);
    std::ranges::copy(start.values, with.values.begin());
    backward(with, query_again.tensor, key_again.tensor, false);
    EXPECT_EQ(query_again.values, query_gradient.values);
    EXPECT_EQ(key_again.values, key_gradient.values);
}

TEST_P(HeadNormTest, TheBitsDoNotDependOnTheNumberOfThreads) {
    Owned gradient = random({kRows, kColumns}, 4), query_gradient({kD}), key_gradient({kD});
    forward();
    const std::vector<float> out = out_.values;
    backward(gradient, query_gradient.tensor, key_gradient.tensor, false);
    backend_ = make_tested_backend(GetParam(), 5);
    Owned again = random({kRows, kColumns}, 4), query_again({kD}), key_again({kD});
    forward();
    backward(again, query_again.tensor, key_again.tensor, false);
    EXPECT_EQ(out_.values, out);
    EXPECT_EQ(again.values, gradient.values);
    EXPECT_EQ(query_again.values, query_gradient.values);
    EXPECT_EQ(key_again.values, key_gradient.values);
}

// A control: one norm over all heads of a token is far off.
TEST_P(HeadNormTest, OneNormOverAllHeadsIsFarOff) {
    forward();
    std::vector<double> wrong;
    for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
        const std::int64_t token = i / kColumns * kColumns, queries = kShape.heads * kD;
        double squares = 0;
        for (std::int64_t c = 0; c < queries; ++c) squares += std::pow(qkv_[token + c], 2) / queries;
        const double scale = 1.0 / std::sqrt(squares + static_cast<double>(kEpsilon));
        wrong.push_back(i - token < queries ? qkv_[i] * scale * query_[i % kD] : out_[i]);
    }
    EXPECT_GT(relative_l2(out_, wrong), 1000 * kOpTolerance);
}

TEST_P(HeadNormTest, WeightsInAStorageFormatCountAsTheirFp32Copies) {
    forward();
    for (const tensor::DType dtype : {tensor::DType::kF16, tensor::DType::kBF16}) {
        std::vector<std::uint16_t> query(kD), key(kD);
        const Tensor stored_query(query.data(), dtype, {kD}), stored_key(key.data(), dtype, {kD});
        backend_->convert(query_.tensor, stored_query);
        backend_->convert(key_.tensor, stored_key);
        Owned out({kRows, kColumns}), wide_query({kD}), wide_key({kD}), wide_out({kRows, kColumns});
        backend_->convert(stored_query, wide_query.tensor);
        backend_->convert(stored_key, wide_key.tensor);
        backend_->norm_heads(kShape, qkv_.tensor, stored_query, stored_key, kEpsilon, out.tensor, rstd_.tensor);
        backend_->norm_heads(kShape, qkv_.tensor, wide_query.tensor, wide_key.tensor, kEpsilon, wide_out.tensor,
                             rstd_.tensor);
        EXPECT_EQ(out.values, wide_out.values);
    }
}

INSTANTIATE_TEST_SUITE_P(All, HeadNormTest, ::testing::ValuesIn(tested_backends()));

}  // namespace
}  // namespace atl::kernels
