// Weights that are kept in fp16 or bf16 give the bits of their fp32 copy, for every instruction set of this machine.

#include <gtest/gtest.h>

#include <tuple>

#include "trainer/kernels/op_test_support.h"

namespace atl::kernels {
namespace {

using tensor::DType;

// A matrix of random values in a storage format, and its fp32 copy.
struct Stored {
    std::vector<std::uint16_t> bits;
    Owned wide;
    Tensor tensor;

    Stored(Backend& backend, DType dtype, std::int64_t rows, std::int64_t columns, unsigned seed)
        : bits(static_cast<std::size_t>(rows * columns)),
          wide(random({rows, columns}, seed)),
          tensor(bits.data(), dtype, {rows, columns}) {
        backend.convert(wide.tensor, tensor);
        backend.convert(tensor, wide.tensor);
    }
};

struct Product {
    std::int64_t m, n, k;
};

class StorageTest : public ::testing::TestWithParam<std::tuple<std::string, DType>> {
  protected:
    DType dtype() const { return std::get<1>(GetParam()); }
    std::unique_ptr<Backend> backend_ = make_cpu_backend(2, std::get<0>(GetParam())).value();
};

TEST_P(StorageTest, AProductIsThatOfTheFp32CopyBitForBit) {
    // Tiles of rows and of columns, blocks that are cut in depth and in width, and sizes that divide by nothing.
    for (const auto& [m, n, k] : {Product{21, 34, 19}, Product{301, 290, 523}, Product{7, 1100, 1031}}) {
        for (const bool transpose_a : {false, true}) {
            for (const bool transpose_b : {false, true}) {
                const Owned a = transpose_a ? random({k, m}, 1) : random({m, k}, 1);
                const Stored b =
                    transpose_b ? Stored(*backend_, dtype(), n, k, 2) : Stored(*backend_, dtype(), k, n, 2);
                Owned c({m, n}, 3.0F), expected({m, n}, 3.0F);
                backend_->matmul(a.tensor, transpose_a, b.tensor, transpose_b, c.tensor, true);
                backend_->matmul(a.tensor, transpose_a, b.wide.tensor, transpose_b, expected.tensor, true);
                EXPECT_EQ(c.values == expected.values, true) << m << " " << n << " " << k << transpose_a << transpose_b;
            }
        }
    }
}

TEST_P(StorageTest, AProductOfAColumnRangeTakesThatRange) {
    const Owned a = random({5, 40}, 1);
    const Stored b(*backend_, dtype(), 70, 100, 2);
    Owned c({5, 70}), expected({5, 70});
    backend_->matmul(a.tensor, false, b.tensor.column_range(30, 40), true, c.tensor, false);
    backend_->matmul(a.tensor, false, b.wide.tensor.column_range(30, 40), true, expected.tensor, false);
    EXPECT_EQ(c.values, expected.values);
}

TEST_P(StorageTest, AnEmbeddingWidensTheRowsItLooksUp) {
    const Stored table(*backend_, dtype(), 11, 37, 3);
    std::vector<std::int32_t> ids = {10, 0, 3, 3};
    Owned out({4, 37}), expected({4, 37});
    backend_->embedding_forward(table.tensor, integers(ids), out.tensor);
    backend_->embedding_forward(table.wide.tensor, integers(ids), expected.tensor);
    EXPECT_EQ(out.values, expected.values);
}

TEST_P(StorageTest, NormsTakeTheirWeightInIt) {
    constexpr std::int64_t kRows = 9, kColumns = 45;
    const Stored weight(*backend_, dtype(), 1, kColumns, 1);
    const Owned x = random({kRows, kColumns}, 2), delta = random({kRows, kColumns}, 3);
    const auto run = [&](const Tensor& of) {
        Owned rstd({kRows}), weight_gradient({kColumns});
        std::vector<Owned> out;
        for (int i = 0; i < 5; ++i) out.emplace_back(Owned({kRows, kColumns}));
        backend_->rmsnorm_forward(x.tensor, of, 1e-5F, out[0].tensor, rstd.tensor);
        backend_->rmsnorm_apply(x.tensor, of, rstd.tensor, out[1].tensor);
        backend_->rmsnorm_backward(x.tensor, of, rstd.tensor, delta.tensor, {}, out[2].tensor, weight_gradient.tensor,
                                   false);
        backend_->add_rmsnorm_forward(x.tensor, delta.tensor, of, 1e-5F, out[3].tensor, out[4].tensor, rstd.tensor);
        std::vector<float> all = weight_gradient.values;
        for (const Owned& one : out) all.insert(all.end(), one.values.begin(), one.values.end());
        return all;
    };
    EXPECT_EQ(run(weight.tensor.reshape({kColumns})), run(weight.wide.tensor.reshape({kColumns})));
}

// Subnormal halves included; signalling NaNs, which some instructions quiet, are not.
TEST_P(StorageTest, EveryValueWidensToItself) {
    std::vector<std::uint16_t> all;
    const std::uint32_t infinity = dtype() == DType::kF16 ? 0x7c00 : 0x7f80;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        if ((bits & 0x7fffU) <= infinity) all.push_back(static_cast<std::uint16_t>(bits));
    }
    const auto count = static_cast<std::int64_t>(all.size());
    Owned wide({count});
    backend_->convert(Tensor(all.data(), dtype(), {count}), wide.tensor);
    const int mantissa_bits = dtype() == DType::kF16 ? 10 : 7, bias = dtype() == DType::kF16 ? 15 : 127;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const int exponent = (all[i] & 0x7fff) >> mantissa_bits, mantissa = all[i] & ((1 << mantissa_bits) - 1);
        const double one = std::ldexp(1.0, -mantissa_bits);
        double value =
            exponent == 0 ? std::ldexp(mantissa * one, 1 - bias) : std::ldexp(1.0 + mantissa * one, exponent - bias);
        if ((all[i] & 0x7fffU) == infinity) value = HUGE_VAL;
        if (all[i] >= 0x8000) value = -value;
        ASSERT_EQ(static_cast<double>(wide.values[i]), value) << all[i];
    }
}

INSTANTIATE_TEST_SUITE_P(Cpu, StorageTest,
                         ::testing::Combine(::testing::ValuesIn(cpu_instruction_sets()),
                                            ::testing::Values(DType::kF16, DType::kBF16)),
                         [](const auto& parameters) {
                             return std::get<0>(parameters.param) +
                                    (std::get<1>(parameters.param) == DType::kF16 ? "_fp16" : "_bf16");
                         });

}  // namespace
}  // namespace atl::kernels
