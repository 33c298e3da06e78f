#include "trainer/weights/convert.h"

#include <algorithm>
#include <cstring>

#include "shared/base/check.h"
#include "shared/numeric/conversions.h"

namespace atl::weights {
namespace {

constexpr std::uint16_t kBF16Exponent = 0x7f80;
constexpr std::uint16_t kF16Exponent = 0x7c00;

// Elements converted between two looks at the exponents: they stay in the first-level cache.
constexpr std::size_t kBlock = 2048;

// True when no element has an exponent of all ones, which NaN and infinity have.
bool all_finite(const std::uint16_t* values, std::size_t count, std::uint16_t exponent) {
    std::uint16_t bad = 0;
    for (std::size_t i = 0; i < count; ++i) bad |= static_cast<std::uint16_t>((values[i] & exponent) == exponent);
    return bad == 0;
}
bool widen_block(DType dtype, const std::byte* bytes, float* out, std::size_t count) {
    const auto& convert = numeric::conversions();
    if (dtype == DType::kF32) std::memcpy(out, bytes, count * sizeof(float));
    if (dtype == DType::kF16) convert.widen_f16(out, bytes, count);
    if (dtype == DType::kBF16) convert.widen_bf16(out, bytes, count);
    return convert.all_finite(out, count);
}

bool narrow_block(DType dtype, const float* values, std::byte* out, std::size_t count) {
    const auto& convert = numeric::conversions();
    if (dtype == DType::kF32) {
        std::memcpy(out, values, count * sizeof(float));
        return convert.all_finite(values, count);
    }
    (dtype == DType::kF16 ? convert.narrow_f16 : convert.narrow_bf16)(out, values, count);
    std::uint16_t bits[kBlock];
    std::memcpy(bits, out, count * sizeof(std::uint16_t));
    return all_finite(bits, count, dtype == DType::kF16 ? kF16Exponent : kBF16Exponent);
}

}  // namespace

bool is_weight_dtype(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

bool all_finite(std::span<const float> values) {
    return numeric::conversions().all_finite(values.data(), values.size());
}

bool widen(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(dtype));
    check(is_weight_dtype(dtype) && bytes.size() == out.size() * width, "widen: sizes or dtype don't match");
    bool finite = true;
    for (std::size_t i = 0; i < out.size(); i += kBlock)
        finite &= widen_block(dtype, bytes.data() + i * width, out.data() + i, std::min(kBlock, out.size() - i));
    return finite;
}

bool narrow(DType dtype, std::span<const float> values, std::span<std::byte> out) {
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(dtype));
    check(is_weight_dtype(dtype) && out.size() == values.size() * width, "narrow: sizes or dtype don't match");
    bool finite = true;
    for (std::size_t i = 0; i < values.size(); i += kBlock)
        finite &= narrow_block(dtype, values.data() + i, out.data() + i * width, std::min(kBlock, values.size() - i));
    return finite;
}

}  // namespace atl::weights
