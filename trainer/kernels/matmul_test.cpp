// Products against a naive fp64 reference, on every backend.

#include <gtest/gtest.h>

#include <filesystem>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/kept.h"
#include "trainer/kernels/testing/on_device.h"

namespace atl::kernels {
namespace {

class MatmulTest : public ::testing::TestWithParam<std::string> {
  protected:
    OnDevice<> transposed(const OnDevice<>& matrix, std::int64_t rows, std::int64_t columns) const {
        std::vector<float> values(matrix.given.size());
        for (std::int64_t i = 0; i < rows * columns; ++i) {
            values[static_cast<std::size_t>(i % columns * rows + i / columns)] =
                matrix.given[static_cast<std::size_t>(i)];
        }
        return {*backend_, tensor::DType::kF32, {columns, rows}, std::move(values)};
    }

    std::unique_ptr<Backend> backend_ = make_tested_backend(GetParam());
};

// fill + a [m, k] · b [k, n].
std::vector<double> product(const OnDevice<>& a, const OnDevice<>& b, std::int64_t m, std::int64_t n, std::int64_t k,
                            double fill) {
    std::vector<double> c(static_cast<std::size_t>(m * n), fill);
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < k; ++j) {
            for (std::int64_t l = 0; l < n; ++l) c[static_cast<std::size_t>(i * n + l)] += a[i * k + j] * b[j * n + l];
        }
    }
    return c;
}

struct Sizes {
    std::int64_t m, n, k;
};

// One tile, and several: of rows and of columns, in blocks of the depth too, with incomplete ones at each end.
constexpr Sizes kProducts[] = {{21, 34, 19}, {301, 290, 523}};

TEST_P(MatmulTest, EveryTranspositionOverwritesAndAccumulates) {
    for (const auto& [m, n, k] : kProducts) {
        const OnDevice<> a = random(*backend_, {m, k}, 1), b = random(*backend_, {k, n}, 2);
        const OnDevice<> a_transposed = transposed(a, m, k), b_transposed = transposed(b, k, n);
        for (const bool accumulate : {false, true}) {
            const std::vector<double> expected = product(a, b, m, n, k, accumulate ? 3.0 : 0.0);
            for (const int transpose : {0, 1, 2, 3}) {
                const bool of_a = (transpose & 1) != 0, of_b = (transpose & 2) != 0;
                OnDevice<> c(*backend_, {m, n}, 3.0F);
                backend_->matmul((of_a ? a_transposed : a).tensor, of_a, (of_b ? b_transposed : b).tensor, of_b,
                                 c.tensor, accumulate);
                EXPECT_LE(relative_l2(c, expected), kOpTolerance) << m << "x" << n << "x" << k << " " << of_a << of_b;
            }
        }
    }
}

// A control: a product that lacks the last of its 523 terms must be far off.
TEST_P(MatmulTest, AProductThatLacksATermIsFarOff) {
    const auto& [m, n, k] = kProducts[1];
    const OnDevice<> a = random(*backend_, {m, k}, 1), b = random(*backend_, {k, n}, 2);
    OnDevice<> c(*backend_, {m, n});
    backend_->matmul(a.tensor.column_range(0, k - 1), false, b.tensor.row_range(0, k - 1), false, c.tensor, false);
    EXPECT_GT(relative_l2(c, product(a, b, m, n, k, 0)), 1000 * kOpTolerance);
}

TEST_P(MatmulTest, ColumnRangesLeaveTheOtherColumnsAlone) {
    const OnDevice<> a = random(*backend_, {5, 12}, 1), b = random(*backend_, {4, 3}, 2);
    OnDevice<> c(*backend_, {5, 8}, 9.0F);
    backend_->matmul(a.tensor.column_range(6, 4), false, b.tensor, false, c.tensor.column_range(2, 3), false);
    const std::vector<float> got = c.read();
    for (std::int64_t m = 0; m < 5; ++m) {
        for (std::int64_t n = 0; n < 8; ++n) {
            double expected = n >= 2 && n < 5 ? 0.0 : 9.0;
            for (std::int64_t k = 0; n >= 2 && n < 5 && k < 4; ++k) expected += a[m * 12 + 6 + k] * b[k * 3 + n - 2];
            EXPECT_NEAR(got[static_cast<std::size_t>(m * 8 + n)], expected, 1e-6);
        }
    }
}

TEST_P(MatmulTest, TheBitsDoNotDependOnTheNumberOfThreads) {
    for (const auto& [m, n, k] : {Sizes{301, 290, 523}, Sizes{512, 1376, 512}}) {
        const auto outcome = [&, m = m, n = n, k = k](int threads) {
            const auto backend = make_tested_backend(GetParam(), threads);
            const OnDevice<> a = random(*backend, {m, k}, 1), b = random(*backend, {n, k}, 2), c(*backend, {m, n});
            backend->matmul(a.tensor, false, b.tensor, true, c.tensor, false);
            return c.read();
        };
        const std::vector<float> expected = outcome(2);
        for (const int threads : {1, 3, 5})
            EXPECT_TRUE(outcome(threads) == expected) << threads << " threads, " << m << "x" << n << "x" << k;
    }
}

TEST_P(MatmulTest, ABiasAndAnAddendAreAddedToTheProduct) {
    const auto& [m, n, k] = kProducts[0];
    const OnDevice<> a = random(*backend_, {m, k}, 1), b = random(*backend_, {k, n}, 2);
    const OnDevice<> bias = random(*backend_, {n}, 3), addend = random(*backend_, {m, n}, 4);
    for (const int terms : {0, 1, 2, 3}) {
        const bool has_bias = (terms & 1) != 0, has_addend = (terms & 2) != 0;
        std::vector<double> expected = product(a, b, m, n, k, 0);
        for (std::int64_t i = 0; i < m * n; ++i)
            expected[static_cast<std::size_t>(i)] += (has_bias ? bias[i % n] : 0) + (has_addend ? addend[i] : 0);
        OnDevice<> d(*backend_, {m, n});
        backend_->matmul_with(a.tensor, false, b.tensor, false, d.tensor,
                              {has_bias ? bias.tensor : Tensor(), has_addend ? addend.tensor : Tensor()});
        EXPECT_LE(relative_l2(d, expected), kOpTolerance) << "terms " << terms;
    }
}

// As a residual stream in fp32 beside activations in bf16.
TEST_P(MatmulTest, ABiasAndAnAddendMayHaveOtherFormatsThanTheFactors) {
    constexpr std::int64_t kRows = 9, kColumns = 16, kInner = 24;
    const Kept a(*backend_, tensor::DType::kBF16, kRows, kInner, 1),
        b(*backend_, tensor::DType::kBF16, kInner, kColumns, 2);
    const Kept bias(*backend_, tensor::DType::kBF16, 1, kColumns, 3);
    const OnDevice<> addend = random(*backend_, {kRows, kColumns}, 4);
    std::vector<double> expected = product(a.wide, b.wide, kRows, kColumns, kInner, 0);
    for (std::int64_t i = 0; i < kRows * kColumns; ++i)
        expected[static_cast<std::size_t>(i)] += bias.wide[i % kColumns] + addend[i];
    OnDevice<> d(*backend_, {kRows, kColumns});
    backend_->matmul_with(a.narrow.tensor, false, b.narrow.tensor, false, d.tensor,
                          {bias.narrow.tensor.reshape({kColumns}), addend.tensor});
    EXPECT_LE(relative_l2(d, expected), kOpTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, MatmulTest, ::testing::ValuesIn(tested_backends()),
                         [](const auto& instance) { return instance.param; });

// The libraries have pools of their own, which would fight ours. Sees only what no test before it has started.
TEST(MatmulThreadsTest, OnlyTheBackendsOwnThreadsCompute) {
    const auto threads = [] {
        const std::filesystem::directory_iterator tasks("/proc/self/task");
        return std::distance(begin(tasks), end(tasks));
    };
    const auto before = threads();
    for (const std::string& set : cpu_instruction_sets()) {
        const auto backend = make_cpu_backend(1, set).value();
        const OnDevice<> a = random(*backend, {512, 512}, 1), b = random(*backend, {512, 512}, 2);
        OnDevice<> c(*backend, {512, 512});
        backend->matmul(a.tensor, false, b.tensor, false, c.tensor, false);
        EXPECT_EQ(threads(), before) << set;
    }
}

}  // namespace
}  // namespace atl::kernels
