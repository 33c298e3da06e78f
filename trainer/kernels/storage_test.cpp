// Weights that are kept in fp16, bf16, int8 or NF4 give the bits of their fp32 copy, for every instruction set of this
// machine.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <tuple>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/owned_tensor.h"
#include "trainer/quant/quantizer.h"

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
    std::unique_ptr<Backend> backend_ = make_tested_backend(std::get<0>(GetParam()));
};

TEST_P(StorageTest, AProductIsThatOfTheFp32CopyBitForBit) {
    // Tiles of rows and of columns, blocks that are cut in depth and in width, sizes that divide by nothing, and
    // strides for which a library may choose another of its kernels than for a widened block's.
    for (const auto& [m, n, k] : {Product{21, 34, 19}, Product{301, 290, 523}, Product{7, 1100, 1031},
                                  Product{256, 256, 768}, Product{256, 512, 2048}}) {
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
    Owned out({4, 37});
    backend_->embedding_forward(table.tensor, integers(ids), out.tensor);
    for (std::int64_t i = 0; i < 4 * 37; ++i) {
        EXPECT_EQ(out[i], table.wide[ids[static_cast<std::size_t>(i / 37)] * 37 + i % 37]) << i;
    }
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

// An AdamW step whose moments are kept in bf16, from moments that bf16 holds exactly.
class RoundedMomentsTest : public ::testing::TestWithParam<std::string> {
  protected:
    static constexpr std::int64_t kCount = 5000;
    static constexpr AdamWStep kStep = {
        .learning_rate = 1e-2F, .beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 1e-8F, .weight_decay = 0.1F};
    StepScalars third_step_{.updates = 3};
    struct State {
        Owned weights = random({kCount}, 1), gradients = random({kCount}, 2);
        std::vector<std::uint16_t> first = std::vector<std::uint16_t>(kCount, 0x3c23);   // 0.01
        std::vector<std::uint16_t> second = std::vector<std::uint16_t>(kCount, 0x3b03);  // 0.002
    };

    static OptimizerRange part(State& state, std::int64_t begin, std::int64_t count, std::int64_t first_element,
                               std::uint64_t seed) {
        const auto moments = [&](std::vector<std::uint16_t>& bits) {
            return Tensor(bits.data() + begin, DType::kBF16, {count});
        };
        return {.weights = Tensor(state.weights.values.data() + begin, DType::kF32, {count}),
                .gradients = Tensor(state.gradients.values.data() + begin, DType::kF32, {count}),
                .first_moments = moments(state.first),
                .second_moments = moments(state.second),
                .stored = {},
                .seed = seed,
                .first_element = first_element + begin};
    }
    State stepped(std::uint64_t seed, std::int64_t first_element, std::vector<std::int64_t> cuts = {}) {
        State state;
        std::int64_t begin = 0;
        cuts.push_back(kCount);
        for (const std::int64_t end : cuts) {
            backend_->adamw(kStep, as_tensor(third_step_), part(state, begin, end - begin, first_element, seed));
            begin = end;
        }
        return state;
    }
    static float wide(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

    std::unique_ptr<Backend> backend_ = make_tested_backend(GetParam());
};

TEST_P(RoundedMomentsTest, TheyDoNotDependOnHowTheWeightsAreCut) {
    const State whole = stepped(7, 1001), cut = stepped(7, 1001, {1, 3, 2050, 2051, 4999});
    EXPECT_EQ(whole.first, cut.first);
    EXPECT_EQ(whole.second, cut.second);
    EXPECT_EQ(whole.weights.values == cut.weights.values, true);
    EXPECT_NE(whole.first, stepped(8, 1001).first) << "the seed does not matter";
    EXPECT_NE(whole.first, stepped(7, 1002).first) << "the element's index does not matter";
}

TEST_P(RoundedMomentsTest, EveryInstructionSetDrawsTheSameNumbers) {
    // Philox4x32-10 with counter {5, 0, 3, 0} and key {7, 0}, as Random123 computes it: elements 20 to 23.
    const std::vector<std::uint32_t> words = {0xd132512e, 0x6f5a4d4d, 0xd0cc80b2, 0x742f7fd9};
    const State state = stepped(7, 20);
    for (std::size_t i = 0; i < 4; ++i) {
        const float gradient = state.gradients.values[i];
        const float first = 0.9F * wide(0x3c23) + (1.0F - 0.9F) * gradient;
        const auto rounded = (std::bit_cast<std::uint32_t>(first) + (words[i] & 0xffffU)) >> 16;
        EXPECT_LE(std::abs(static_cast<int>(rounded) - state.first[i]), 0) << i;
    }
}

TEST_P(RoundedMomentsTest, TheirMeanIsThatOfTheExactMoments) {
    constexpr std::size_t kElements = 50, kDraws = 200;
    std::vector<double> mean(kElements, 0.0);
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
        const State state = stepped(seed, 0);
        for (std::size_t i = 0; i < kElements; ++i) mean[i] += static_cast<double>(wide(state.second[i])) / kDraws;
    }
    const State state;
    double stochastic = 0, nearest = 0;  // how far off, over all elements
    for (std::size_t i = 0; i < kElements; ++i) {
        const double gradient = static_cast<double>(state.gradients.values[i]);
        const double exact = 0.99 * static_cast<double>(wide(0x3b03)) + 0.01 * gradient * gradient;
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(exact)) + 0x8000U;
        stochastic += std::abs(mean[i] - exact);
        nearest += std::abs(static_cast<double>(wide(static_cast<std::uint16_t>(bits >> 16))) - exact);
    }
    EXPECT_LT(stochastic, 0.25 * nearest);
}

// What a step stores besides the weights themselves.
TEST_P(RoundedMomentsTest, TheStoredWeightsAreTheNewOnesRoundedToNearest) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
        State state;
        std::vector<std::uint16_t> stored(kCount), expected(kCount);
        OptimizerRange range = part(state, 0, kCount, 0, 1);
        range.stored = Tensor(stored.data(), dtype, {kCount});
        backend_->adamw(kStep, as_tensor(third_step_), range);
        backend_->convert(range.weights, Tensor(expected.data(), dtype, {kCount}));
        EXPECT_EQ(stored, expected);
        backend_->sgd({.learning_rate = 0.1F, .momentum = 0.9F, .weight_decay = 0}, as_tensor(third_step_), range);
        EXPECT_NE(stored, expected);
        backend_->convert(range.weights, Tensor(expected.data(), dtype, {kCount}));
        EXPECT_EQ(stored, expected);
    }
}

class QuantizedTest : public ::testing::TestWithParam<std::tuple<std::string, quant::Format>> {};

TEST_P(QuantizedTest, AProductIsThatOfTheDequantisedMatrixBitForBit) {
    const auto& [instructions, format] = GetParam();
    const auto backend = make_cpu_backend(2, instructions).value();
    const DType dtype = format == quant::Format::kNf4 ? DType::kNf4 : DType::kInt8;
    // Rows that blocks of 64 do not divide, of even and odd length, and more of both than a tile has.
    for (const auto& [m, n, k] : {Product{21, 34, 19}, Product{9, 290, 523}, Product{3, 64, 128}}) {
        for (const bool transpose_b : {false, true}) {
            const std::int64_t rows = transpose_b ? n : k, columns = transpose_b ? k : n;
            const Owned a = random({m, k}, 1);
            Owned wide = random({rows, columns}, 2);
            quant::Quantizer quantizer(format, rows, columns);
            quantizer.append(wide.values);
            std::vector<std::byte> storage = quantizer.finish();
            quant::dequantize(format, storage, rows, columns, 0, wide.values);
            Owned c({m, n}, 3.0F), expected({m, n}, 3.0F);
            backend->matmul(a.tensor, false, Tensor(storage.data(), dtype, {rows, columns}), transpose_b, c.tensor,
                            true);
            backend->matmul(a.tensor, false, wide.tensor, transpose_b, expected.tensor, true);
            EXPECT_EQ(c.values == expected.values, true) << m << " " << n << " " << k << transpose_b;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cpu, QuantizedTest,
                         ::testing::Combine(::testing::ValuesIn(cpu_instruction_sets()),
                                            ::testing::Values(quant::Format::kInt8, quant::Format::kNf4)),
                         [](const auto& parameters) {
                             return std::get<0>(parameters.param) +
                                    (std::get<1>(parameters.param) == quant::Format::kNf4 ? "_nf4" : "_int8");
                         });

INSTANTIATE_TEST_SUITE_P(All, RoundedMomentsTest, ::testing::ValuesIn(tested_backends()),
                         [](const auto& parameters) { return parameters.param; });

INSTANTIATE_TEST_SUITE_P(All, StorageTest,
                         ::testing::Combine(::testing::ValuesIn(tested_backends()),
                                            ::testing::Values(DType::kF16, DType::kBF16)),
                         [](const auto& parameters) {
                             return std::get<0>(parameters.param) +
                                    (std::get<1>(parameters.param) == DType::kF16 ? "_fp16" : "_bf16");
                         });

}  // namespace
}  // namespace atl::kernels
