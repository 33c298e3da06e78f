// Weights that are kept in fp16, bf16, int8 or NF4 give the bits of their fp32 copy, on every backend that takes them.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <tuple>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"
#include "trainer/quant/quantizer.h"

namespace atl::kernels {
namespace {

using tensor::DType;

// A matrix of random values in a storage format, and its fp32 copy.
struct Stored {
    OnDevice<> wide;
    OnDevice<std::uint16_t> bits;
    Tensor tensor;

    Stored(Backend& backend, DType dtype, std::int64_t rows, std::int64_t columns, unsigned seed)
        : wide(random(backend, {rows, columns}, seed)),
          bits(halves(backend, dtype, {rows, columns}, std::vector<std::uint16_t>(wide.given.size()))),
          tensor(bits.tensor) {
        backend.convert(wide.tensor, tensor);
        backend.convert(tensor, wide.tensor);
        wide.write(wide.read());
    }
};

struct Product {
    std::int64_t m, n, k;
};

class StorageTest : public ::testing::TestWithParam<std::tuple<std::string, DType>> {
  protected:
    DType dtype() const { return std::get<1>(GetParam()); }
    // A GPU's library may add up in another order.
    static bool is_product(const OnDevice<>& c, const OnDevice<>& expected) {
        const std::vector<float> wanted = expected.read();
        if (std::get<0>(GetParam()) != "gpu") return c.read() == wanted;
        return relative_l2(c, {wanted.begin(), wanted.end()}) <= kOpTolerance;
    }
    std::unique_ptr<Backend> backend_ = make_tested_backend(std::get<0>(GetParam()));
};

TEST_P(StorageTest, AProductIsThatOfTheFp32CopyOnACpuBitForBit) {
    // Tiles of rows and of columns, blocks that are cut in depth and in width, sizes that divide by nothing, and
    // strides for which a library may choose another of its kernels than for a widened block's.
    for (const auto& [m, n, k] : {Product{21, 34, 19}, Product{301, 290, 523}, Product{7, 1100, 1031},
                                  Product{256, 256, 768}, Product{256, 512, 2048}}) {
        for (const bool transpose_a : {false, true}) {
            for (const bool transpose_b : {false, true}) {
                const OnDevice<> a = transpose_a ? random(*backend_, {k, m}, 1) : random(*backend_, {m, k}, 1);
                const Stored b =
                    transpose_b ? Stored(*backend_, dtype(), n, k, 2) : Stored(*backend_, dtype(), k, n, 2);
                OnDevice<> c(*backend_, {m, n}, 3.0F), expected(*backend_, {m, n}, 3.0F);
                backend_->matmul(a.tensor, transpose_a, b.tensor, transpose_b, c.tensor, true);
                backend_->matmul(a.tensor, transpose_a, b.wide.tensor, transpose_b, expected.tensor, true);
                EXPECT_TRUE(is_product(c, expected)) << m << " " << n << " " << k << transpose_a << transpose_b;
            }
        }
    }
}

TEST_P(StorageTest, AProductOfAColumnRangeTakesThatRange) {
    const OnDevice<> a = random(*backend_, {5, 40}, 1);
    const Stored b(*backend_, dtype(), 70, 100, 2);
    OnDevice<> c(*backend_, {5, 70}), expected(*backend_, {5, 70});
    backend_->matmul(a.tensor, false, b.tensor.column_range(30, 40), true, c.tensor, false);
    backend_->matmul(a.tensor, false, b.wide.tensor.column_range(30, 40), true, expected.tensor, false);
    EXPECT_TRUE(is_product(c, expected));
}

TEST_P(StorageTest, AnEmbeddingWidensTheRowsItLooksUp) {
    const Stored table(*backend_, dtype(), 11, 37, 3);
    const std::vector<std::int32_t> ids = {10, 0, 3, 3};
    OnDevice<> out(*backend_, {4, 37});
    backend_->embedding_forward(table.tensor, integers(*backend_, ids).tensor, out.tensor);
    const std::vector<float> rows = out.read();
    for (std::size_t i = 0; i < rows.size(); ++i)
        EXPECT_EQ(rows[i], table.wide.given[static_cast<std::size_t>(ids[i / 37]) * 37 + i % 37]) << i;
}

TEST_P(StorageTest, NormsTakeTheirWeightInIt) {
    constexpr std::int64_t kRows = 9, kColumns = 45;
    const Stored weight(*backend_, dtype(), 1, kColumns, 1);
    const OnDevice<> x = random(*backend_, {kRows, kColumns}, 2), delta = random(*backend_, {kRows, kColumns}, 3);
    const auto run = [&](const Tensor& of) {
        OnDevice<> rstd(*backend_, {kRows}), weight_gradient(*backend_, {kColumns});
        std::vector<OnDevice<>> out;
        for (int i = 0; i < 5; ++i) out.emplace_back(*backend_, std::initializer_list<std::int64_t>{kRows, kColumns});
        backend_->rmsnorm_forward(x.tensor, of, 1e-5F, out[0].tensor, rstd.tensor);
        backend_->rmsnorm_apply(x.tensor, of, rstd.tensor, out[1].tensor);
        backend_->rmsnorm_backward(x.tensor, of, rstd.tensor, delta.tensor, {}, out[2].tensor, weight_gradient.tensor,
                                   false);
        backend_->add_rmsnorm_forward(x.tensor, delta.tensor, of, 1e-5F, out[3].tensor, out[4].tensor, rstd.tensor);
        std::vector<std::vector<float>> all = {weight_gradient.read()};
        for (const OnDevice<>& one : out) all.push_back(one.read());
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
    OnDevice<> wide(*backend_, {count});
    backend_->convert(halves(*backend_, dtype(), {count}, all).tensor, wide.tensor);
    const std::vector<float> values = wide.read();
    const int mantissa_bits = dtype() == DType::kF16 ? 10 : 7, bias = dtype() == DType::kF16 ? 15 : 127;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const int exponent = (all[i] & 0x7fff) >> mantissa_bits, mantissa = all[i] & ((1 << mantissa_bits) - 1);
        const double one = std::ldexp(1.0, -mantissa_bits);
        double value =
            exponent == 0 ? std::ldexp(mantissa * one, 1 - bias) : std::ldexp(1.0 + mantissa * one, exponent - bias);
        if ((all[i] & 0x7fffU) == infinity) value = HUGE_VAL;
        if (all[i] >= 0x8000) value = -value;
        ASSERT_EQ(static_cast<double>(values[i]), value) << all[i];
    }
}

// An AdamW step whose moments are kept in bf16, from moments that bf16 holds exactly.
class RoundedMomentsTest : public ::testing::TestWithParam<std::string> {
  protected:
    static constexpr std::int64_t kCount = 5000;
    static constexpr AdamWStep kStep = {
        .learning_rate = 1e-2F, .beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 1e-8F, .weight_decay = 0.1F};
    // What a step works on.
    struct State {
        OnDevice<> weights, gradients;
        OnDevice<std::uint16_t> first, second;

        explicit State(Backend& backend)
            : weights(random(backend, {kCount}, 1)),
              gradients(random(backend, {kCount}, 2)),
              first(halves(backend, DType::kBF16, {kCount}, std::vector<std::uint16_t>(kCount, kFirst))),
              second(halves(backend, DType::kBF16, {kCount}, std::vector<std::uint16_t>(kCount, kSecond))) {}
    };
    static constexpr std::uint16_t kFirst = 0x3c23, kSecond = 0x3b03;  // 0.01 and 0.002

    static OptimizerRange part(const State& state, std::int64_t begin, std::int64_t count, std::int64_t first_element,
                               std::uint64_t seed) {
        const auto range = [&](const Tensor& all) { return Tensor(all.at(begin), all.dtype(), {count}); };
        return {.weights = range(state.weights.tensor),
                .gradients = range(state.gradients.tensor),
                .first_moments = range(state.first.tensor),
                .second_moments = range(state.second.tensor),
                .stored = {},
                .seed = seed,
                .first_element = first_element + begin};
    }
    State stepped(std::uint64_t seed, std::int64_t first_element, std::vector<std::int64_t> cuts = {}) {
        State state(*backend_);
        std::int64_t begin = 0;
        cuts.push_back(kCount);
        for (const std::int64_t end : cuts) {
            backend_->adamw(kStep, third_step_.tensor, part(state, begin, end - begin, first_element, seed));
            begin = end;
        }
        return state;
    }
    static float wide(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

    std::unique_ptr<Backend> backend_ = make_tested_backend(GetParam());
    const OnDevice<StepScalars> third_step_ = scalars(*backend_, {.updates = 3});
};

TEST_P(RoundedMomentsTest, TheyDoNotDependOnHowTheWeightsAreCut) {
    const State whole = stepped(7, 1001), cut = stepped(7, 1001, {1, 3, 2050, 2051, 4999});
    EXPECT_EQ(whole.first.read(), cut.first.read());
    EXPECT_EQ(whole.second.read(), cut.second.read());
    EXPECT_EQ(whole.weights.read() == cut.weights.read(), true);
    EXPECT_NE(whole.first.read(), stepped(8, 1001).first.read()) << "the seed does not matter";
    EXPECT_NE(whole.first.read(), stepped(7, 1002).first.read()) << "the element's index does not matter";
}

TEST_P(RoundedMomentsTest, EveryInstructionSetDrawsTheSameNumbers) {
    // Philox4x32-10 with counter {5, 0, 3, 0} and key {7, 0}, as Random123 computes it: elements 20 to 23.
    const std::vector<std::uint32_t> words = {0xd132512e, 0x6f5a4d4d, 0xd0cc80b2, 0x742f7fd9};
    const State state = stepped(7, 20);
    const std::vector<std::uint16_t> bits = state.first.read();
    for (std::size_t i = 0; i < 4; ++i) {
        const float gradient = state.gradients.given[i];
        const float first = 0.9F * wide(kFirst) + (1.0F - 0.9F) * gradient;
        const auto rounded = (std::bit_cast<std::uint32_t>(first) + (words[i] & 0xffffU)) >> 16;
        EXPECT_LE(std::abs(static_cast<int>(rounded) - bits[i]), 0) << i;
    }
}

TEST_P(RoundedMomentsTest, TheirMeanIsThatOfTheExactMoments) {
    constexpr std::size_t kElements = 50, kDraws = 200;
    std::vector<double> mean(kElements, 0.0);
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
        const std::vector<std::uint16_t> bits = stepped(seed, 0).second.read();
        for (std::size_t i = 0; i < kElements; ++i) mean[i] += static_cast<double>(wide(bits[i])) / kDraws;
    }
    const State state(*backend_);
    double stochastic = 0, nearest = 0;  // how far off, over all elements
    for (std::size_t i = 0; i < kElements; ++i) {
        const double gradient = static_cast<double>(state.gradients.given[i]);
        const double exact = 0.99 * static_cast<double>(wide(kSecond)) + 0.01 * gradient * gradient;
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(exact)) + 0x8000U;
        stochastic += std::abs(mean[i] - exact);
        nearest += std::abs(static_cast<double>(wide(static_cast<std::uint16_t>(bits >> 16))) - exact);
    }
    EXPECT_LT(stochastic, 0.25 * nearest);
}

// What a step stores besides the weights themselves.
TEST_P(RoundedMomentsTest, TheStoredWeightsAreTheNewOnesRoundedToNearest) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
        const State state(*backend_);
        const std::vector<std::uint16_t> unset(kCount);
        const auto stored = halves(*backend_, dtype, {kCount}, unset),
                   expected = halves(*backend_, dtype, {kCount}, unset);
        OptimizerRange range = part(state, 0, kCount, 0, 1);
        range.stored = stored.tensor;
        backend_->adamw(kStep, third_step_.tensor, range);
        backend_->convert(range.weights, expected.tensor);
        EXPECT_EQ(stored.read(), expected.read());
        backend_->sgd({.learning_rate = 0.1F, .momentum = 0.9F, .weight_decay = 0}, third_step_.tensor, range);
        EXPECT_NE(stored.read(), expected.read());
        backend_->convert(range.weights, expected.tensor);
        EXPECT_EQ(stored.read(), expected.read());
    }
}

class QuantizedTest : public ::testing::TestWithParam<std::tuple<std::string, quant::Format>> {};

TEST_P(QuantizedTest, AProductIsThatOfTheDequantisedMatrixBitForBit) {
    const auto& [name, format] = GetParam();
    const auto backend = make_tested_backend(name);
    const DType dtype = format == quant::Format::kNf4 ? DType::kNf4 : DType::kInt8;
    // Rows that blocks of 64 do not divide, of even and odd length, and more of both than a tile has.
    for (const auto& [m, n, k] : {Product{21, 34, 19}, Product{9, 290, 523}, Product{3, 64, 128}}) {
        for (const bool transpose_b : {false, true}) {
            const std::int64_t rows = transpose_b ? n : k, columns = transpose_b ? k : n;
            const OnDevice<> a = random(*backend, {m, k}, 1);
            OnDevice<> wide = random(*backend, {rows, columns}, 2);
            quant::Quantizer quantizer(format, rows, columns);
            quantizer.append(wide.given);
            const std::vector<std::byte> bytes = quantizer.finish();
            std::vector<float> dequantised(wide.given.size());
            quant::dequantize(format, bytes, rows, columns, 0, dequantised);
            wide.write(dequantised);
            const auto size = static_cast<std::int64_t>(bytes.size());
            const OnDevice<std::byte> storage(*backend, DType::kU8, {size}, bytes);
            const Tensor stored(storage.tensor.data(), dtype, {rows, columns});
            const OnDevice<> c(*backend, {m, n}, 3.0F), expected(*backend, {m, n}, 3.0F);
            backend->matmul(a.tensor, false, stored, transpose_b, c.tensor, true);
            backend->matmul(a.tensor, false, wide.tensor, transpose_b, expected.tensor, true);
            EXPECT_EQ(c.read() == expected.read(), true) << m << " " << n << " " << k << transpose_b;
        }
    }
}

// What a device that multiplies no quantised matrices makes of them, also where others lie beside them.
class DequantizeTest : public QuantizedTest {};

TEST_P(DequantizeTest, EachElementIsItsCodeTimesItsFactorRoundedOnce) {
    const auto& [name, format] = GetParam();
    const auto backend = make_tested_backend(name);
    const DType dtype = format == quant::Format::kNf4 ? DType::kNf4 : DType::kInt8;
    struct Size {
        std::int64_t rows, columns;
    };
    // Of whole vectors, and not; of whole blocks, and not; with rows before it that leave it unaligned.
    for (const auto& [rows, columns] : {Size{64, 128}, Size{300, 72}, Size{19, 34}, Size{7, 523}, Size{1, 1}}) {
        const OnDevice<> given = random(*backend, {rows, columns}, 2);
        quant::Quantizer quantizer(format, rows, columns);
        quantizer.append(given.given);
        const std::vector<std::byte> bytes = quantizer.finish();
        OnDevice<> wanted(*backend, {rows, columns});
        std::vector<float> values(given.given.size());
        quant::dequantize(format, bytes, rows, columns, 0, values);
        wanted.write(values);
        const OnDevice<std::byte> storage(*backend, DType::kU8, {static_cast<std::int64_t>(bytes.size())}, bytes);
        const Tensor stored(storage.tensor.data(), dtype, {rows, columns});
        const OnDevice<> wide(*backend, {rows, columns});
        backend->dequantize(stored, wide.tensor);
        EXPECT_TRUE(wide.read() == values) << rows << " " << columns;
        for (const DType half : {DType::kBF16, DType::kF16}) {
            const std::vector<std::uint16_t> nothing(static_cast<std::size_t>((rows + 1) * columns));
            const OnDevice<std::uint16_t> into = halves(*backend, half, {rows + 1, columns}, nothing);
            const OnDevice<std::uint16_t> rounded = halves(*backend, half, {rows + 1, columns}, nothing);
            backend->dequantize(stored, into.tensor.row_range(1, rows));
            backend->convert(wanted.tensor, rounded.tensor.row_range(1, rows));
            EXPECT_TRUE(into.read() == rounded.read()) << rows << " " << columns;
        }
    }
}

std::string quantized_name(const ::testing::TestParamInfo<std::tuple<std::string, quant::Format>>& parameters) {
    return std::get<0>(parameters.param) + (std::get<1>(parameters.param) == quant::Format::kNf4 ? "_nf4" : "_int8");
}

INSTANTIATE_TEST_SUITE_P(All, DequantizeTest,
                         ::testing::Combine(::testing::ValuesIn(tested_backends()),
                                            ::testing::Values(quant::Format::kInt8, quant::Format::kNf4)),
                         quantized_name);

INSTANTIATE_TEST_SUITE_P(Cpu, QuantizedTest,
                         ::testing::Combine(::testing::ValuesIn(tested_cpu_backends()),
                                            ::testing::Values(quant::Format::kInt8, quant::Format::kNf4)),
                         quantized_name);

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
