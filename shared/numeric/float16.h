#pragma once

#include <cstdint>

// One value of fp16 or bf16 to fp32, and back with rounding to nearest, ties to even; NaN stays NaN. Selections rather
// than branches, so that the compiler vectorises a loop over them.
//
// Always inlined: loops that are compiled once for each instruction set call them, and the linker could keep a copy
// that the machine cannot run.
namespace atl::numeric {

[[gnu::always_inline]] constexpr float widen_f16(std::uint16_t half) {
    const std::uint32_t magnitude = (half & 0x7fffU) << 13;
    // Multiplying by 2^112 rebases the exponent and is exact for subnormal halves too. Infinity and NaN come out as
    // large numbers, whose exponent is then set to all ones.
    const float rebased = __builtin_bit_cast(float, magnitude) * 0x1p112F;
    const std::uint32_t exponent = magnitude >= 0x0f800000U ? 0x7f800000U : 0;
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, rebased) | exponent | (half & 0x8000U) << 16);
}

[[gnu::always_inline]] constexpr std::uint16_t narrow_f16(float value) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    // Subnormal halves: adding 0.5 rounds to multiples of 2^−24, to nearest even, in the low bits.
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5F;
    const std::uint32_t small = __builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000U;
    const std::uint32_t normal = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
    const std::uint32_t nan = 0x7e00U, infinity = 0x7c00U;
    std::uint32_t half = magnitude < 0x38800000U ? small : normal;
    half = magnitude >= 0x477ff000U ? infinity : half;  // rounds to 65536 or more
    half = magnitude > 0x7f800000U ? nan : half;
    return static_cast<std::uint16_t>(half | (bits >> 16 & 0x8000U));
}

[[gnu::always_inline]] constexpr float widen_bf16(std::uint16_t upper) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(upper) << 16);
}

[[gnu::always_inline]] constexpr std::uint16_t narrow_bf16(float value) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t nan = (bits >> 16) | 0x40U;
    return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

}  // namespace atl::numeric
