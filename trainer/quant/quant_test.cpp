// Against bitsandbytes: tests/numerics/make_quant_goldens.py made the numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "shared/safetensors/file.h"
#include "trainer/kernels/testing/worse.h"
#include "trainer/quant/int8.h"
#include "trainer/quant/nf4.h"
#include "trainer/quant/quantizer.h"

namespace atl::quant {
namespace {

constexpr std::int64_t kRows = 215, kColumns = 96, kCount = kRows * kColumns;

std::vector<float> matrix() {
    std::vector<float> values;
    for (std::int64_t i = 0; i < kCount; ++i) {
        const std::int64_t mixed = (i * 2654435761 + i / 7 * 40503) % (1 << 24);
        const auto value = static_cast<float>(mixed - (1 << 23)) * 0x1p-26F;
        values.push_back(i >= 64 && i < 128 ? 0.0F : std::ldexp(value, static_cast<int>(i / kColumns % 5) - 3));
    }
    return values;
}

TakeBytes into(std::vector<std::byte>& storage) {
    return [&](std::int64_t at, std::span<const std::byte> bytes) { std::ranges::copy(bytes, storage.begin() + at); };
}

class QuantGoldenTest : public testing::Test {
  protected:
    template <class T>
    std::vector<T> golden(const std::string& name) const {
        const auto* tensor = file_.header().find(name);
        EXPECT_NE(tensor, nullptr) << name;
        const auto bytes = file_.bytes(*tensor);
        std::vector<T> values(bytes.size() / sizeof(T));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }

    std::vector<std::byte> nf4(std::size_t piece) const {
        std::vector<std::byte> storage(static_cast<std::size_t>(layout_.size));
        Nf4Quantizer quantizer(kCount, into(storage));
        for (std::size_t at = 0; at < values_.size(); at += piece) {
            quantizer.append(std::span(values_).subspan(at, std::min(piece, values_.size() - at)));
        }
        quantizer.finish();
        return storage;
    }

    template <class T>
    static std::vector<T> part(std::span<const std::byte> storage, std::int64_t at, std::size_t count) {
        std::vector<T> values(count);
        std::memcpy(values.data(), storage.data() + at, count * sizeof(T));
        return values;
    }

    const safetensors::File file_ = safetensors::File::open(ATOLL_GOLDEN_DIR "/quant/golden.safetensors").value();
    const std::vector<float> values_ = matrix();
    const Nf4Layout layout_{kCount};
};

TEST_F(QuantGoldenTest, TheCodeBooksAreThoseOfBitsandbytes) {
    EXPECT_TRUE(std::ranges::equal(kNf4Values, golden<float>("nf4.code")));
    EXPECT_TRUE(std::ranges::equal(dynamic_values(), golden<float>("dynamic")));
}

TEST_F(QuantGoldenTest, Nf4CodesAreExactlyThoseOfBitsandbytesAndFactorsTo1e6) {
    const auto storage = nf4(values_.size());
    const auto codes = golden<std::uint8_t>("nf4.codes"), scales = golden<std::uint8_t>("nf4.scales");
    EXPECT_EQ(part<std::uint8_t>(storage, layout_.codes, codes.size()), codes);
    EXPECT_EQ(part<std::uint8_t>(storage, layout_.scales, scales.size()), scales);
    const auto magnitudes = golden<float>("nf4.magnitudes");
    const auto stored = part<float>(storage, layout_.magnitudes, magnitudes.size());
    for (std::size_t i = 0; i < stored.size(); ++i) EXPECT_NEAR(stored[i] / magnitudes[i], 1, 1e-6);
    EXPECT_NEAR(part<float>(storage, 0, 1)[0] / golden<float>("nf4.mean")[0], 1, 1e-6);
}

TEST_F(QuantGoldenTest, Nf4DecodesToTheCodeTimesTheFactorOfItsBlock) {
    const auto storage = nf4(values_.size());
    const auto codes = golden<std::uint8_t>("nf4.codes");
    const auto factors = golden<float>("nf4.factors");
    std::vector<float> decoded(kCount);
    dequantize_nf4(storage, kCount, 0, decoded);
    for (std::size_t i = 0; i < decoded.size(); ++i) {
        const unsigned code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15U;
        ASSERT_NEAR(decoded[i], kNf4Values[code] * factors[i / 64], 1e-6F * std::abs(factors[i / 64])) << i;
    }
    for (std::size_t i = 64; i < 128; ++i) ASSERT_EQ(decoded[i], 0.0F);
}

TEST_F(QuantGoldenTest, Nf4DoesNotDependOnThePiecesOrTheRange) {
    const auto whole = nf4(values_.size());
    for (const std::size_t piece : {1U, 63U, 96U, 1000U}) EXPECT_EQ(nf4(piece) == whole, true) << piece;
    std::vector<float> decoded(kCount), some(203);
    dequantize_nf4(whole, kCount, 0, decoded);
    dequantize_nf4(whole, kCount, 1001, some);
    EXPECT_TRUE(std::ranges::equal(some, std::span(decoded).subspan(1001, some.size())));
}

TEST_F(QuantGoldenTest, Int8CodesAreExactlyThoseOfBitsandbytesAndFactorsTo1e6) {
    const Int8Layout layout(kRows, kColumns);
    Quantizer quantizer(Format::kInt8, kRows, kColumns);
    quantizer.append(std::span(values_).first(100 * kColumns));
    quantizer.append(std::span(values_).subspan(100 * kColumns));
    const auto storage = quantizer.finish();
    EXPECT_EQ(part<std::int8_t>(storage, layout.codes, kCount), golden<std::int8_t>("int8.codes"));
    const auto magnitudes = golden<float>("int8.magnitudes");
    std::vector<float> decoded(kCount);
    dequantize_int8(storage, kRows, kColumns, 0, decoded);
    for (std::size_t i = 0; i < decoded.size(); ++i) {
        ASSERT_NEAR(decoded[i], values_[i], magnitudes[i / kColumns] / 253) << i;
    }
    const auto factors = part<float>(storage, 0, kRows);
    for (std::size_t row = 0; row < factors.size(); ++row) EXPECT_NEAR(factors[row] * 127 / magnitudes[row], 1, 1e-6);
}

// Controls: what must not pass, to show that the goldens can tell.

TEST_F(QuantGoldenTest, BlocksAndFactorsDownTheColumnsGiveOtherCodes) {
    std::vector<float> turned;
    for (std::int64_t i = 0; i < kCount; ++i) {
        turned.push_back(values_[static_cast<std::size_t>(i % kRows * kColumns + i / kRows)]);
    }
    std::vector<std::byte> nf4_storage(static_cast<std::size_t>(layout_.size));
    Nf4Quantizer quantizer(kCount, into(nf4_storage));
    quantizer.append(turned);
    quantizer.finish();
    const Int8Layout layout(kColumns, kRows);
    std::vector<std::byte> int8_storage(static_cast<std::size_t>(layout.size));
    quantize_int8(kRows, turned, int8_storage);
    const auto nf4_wanted = golden<std::uint8_t>("nf4.codes");
    const auto nf4_codes = part<std::uint8_t>(nf4_storage, layout_.codes, nf4_wanted.size());
    const auto int8_wanted = golden<std::int8_t>("int8.codes");
    const auto int8_codes = part<std::int8_t>(int8_storage, layout.codes, kCount);
    std::int64_t nf4_others = 0, int8_others = 0;
    for (std::size_t i = 0; i < int8_wanted.size(); ++i) {
        const std::size_t at = i % kColumns * kRows + i / kColumns;  // of the same element
        const auto code = [](const std::vector<std::uint8_t>& codes, std::size_t element) {
            return element % 2 == 0 ? codes[element / 2] >> 4 : codes[element / 2] & 15;
        };
        if (code(nf4_codes, at) != code(nf4_wanted, i)) ++nf4_others;
        if (int8_codes[at] != int8_wanted[i]) ++int8_others;
    }
    EXPECT_GT(nf4_others, kCount / 4);
    EXPECT_GT(int8_others, kCount / 4);
}

// A block that is a tensor of its own has no other magnitude to share a code with: its factor is its magnitude.
TEST_F(QuantGoldenTest, FactorsOfBlocksQuantisedAloneAreExactAndFarOff) {
    constexpr auto kBlock = static_cast<std::size_t>(kNf4Block);
    const auto storage = nf4(values_.size());
    const auto factors = golden<float>("nf4.factors");
    double worst = 0;
    for (std::size_t block = 0; block < factors.size(); ++block) {
        const auto values = std::span(values_).subspan(kBlock * block, std::min(kBlock, kCount - kBlock * block));
        const float magnitude = std::abs(*std::ranges::max_element(values, {}, [](float x) { return std::abs(x); }));
        const Nf4Layout layout(std::ssize(values));
        std::vector<std::byte> alone(static_cast<std::size_t>(layout.size));
        Nf4Quantizer quantizer(std::ssize(values), into(alone));
        quantizer.append(values);
        quantizer.finish();
        const double factor = nf4_scale(alone.data(), layout, 0);
        EXPECT_EQ(factor, magnitude) << block;
        const double together = nf4_scale(storage.data(), layout_, static_cast<std::int64_t>(block));
        EXPECT_NEAR(together, factors[block], 1e-6 * std::abs(factors[block])) << block;
        if (magnitude > 0) worst = kernels::worse(worst, std::abs(factor / factors[block] - 1));
    }
    EXPECT_GT(worst, 1e-3);
}

// Rounding a value that is half a step shorter cuts off the code of the value itself.
TEST_F(QuantGoldenTest, CodesThatAreCutOffInsteadOfRoundedAreFarOff) {
    const Int8Layout layout(kRows, kColumns);
    std::vector<std::byte> storage(static_cast<std::size_t>(layout.size));
    quantize_int8(kColumns, values_, storage);
    const auto factors = part<float>(storage, 0, kRows);
    std::vector<float> shortened = values_;
    for (std::size_t i = 0; i < shortened.size(); ++i) {
        const float step = factors[i / kColumns], magnitude = std::abs(values_[i]);
        const bool is_largest = magnitude > 126.9F * step;  // the row's factor must stay
        if (!is_largest) shortened[i] = std::copysign(std::max(0.0F, magnitude - step / 2), values_[i]);
    }
    quantize_int8(kColumns, shortened, storage);
    const auto codes = part<std::int8_t>(storage, layout.codes, kCount), wanted = golden<std::int8_t>("int8.codes");
    std::int64_t others = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) {
        const int nearer_to_zero = std::abs(wanted[i]) - std::abs(codes[i]);
        EXPECT_TRUE(nearer_to_zero == 0 || nearer_to_zero == 1) << i << ": " << nearer_to_zero;
        others += nearer_to_zero;
    }
    EXPECT_GT(others, kCount / 4);
    EXPECT_LT(others, kCount * 3 / 4) << "codes are cut off without this, too";
}

// Rows and columns after which both formats have padding.
TEST(QuantizerTest, HandsOverEveryByteOnceAndTheSameInAnyPieces) {
    constexpr std::int64_t kOddRows = 7, kOddColumns = 33;
    const std::vector<float> all = matrix();
    const auto values = std::span(all).first(kOddRows * kOddColumns);
    for (const Format format : {Format::kInt8, Format::kNf4}) {
        Quantizer collecting(format, kOddRows, kOddColumns);
        collecting.append(values);
        const std::vector<std::byte> whole = collecting.finish();
        std::vector<std::byte> pieces(whole.size());
        std::vector<int> times(whole.size());
        Quantizer quantizer(format, kOddRows, kOddColumns, [&](std::int64_t at, std::span<const std::byte> bytes) {
            std::ranges::copy(bytes, pieces.begin() + at);
            for (std::size_t i = 0; i < bytes.size(); ++i) ++times[static_cast<std::size_t>(at) + i];
        });
        for (std::size_t row = 0; row < kOddRows; ++row) {
            quantizer.append(values.subspan(row * kOddColumns, kOddColumns));
        }
        EXPECT_TRUE(quantizer.finish().empty());
        EXPECT_EQ(pieces == whole, true);
        EXPECT_EQ(times, std::vector<int>(whole.size(), 1));
    }
}

TEST(Int8Test, ARowOfZerosStaysZeros) {
    const std::vector<float> zeros(8, 0.0F);
    std::vector<std::byte> storage(static_cast<std::size_t>(Int8Layout(2, 4).size), std::byte{7});
    quantize_int8(4, zeros, storage);
    std::vector<float> decoded(8, 1.0F);
    dequantize_int8(storage, 2, 4, 0, decoded);
    EXPECT_EQ(decoded, zeros);
}

}  // namespace
}  // namespace atl::quant
