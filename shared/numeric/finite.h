#pragma once

#include <cstddef>
#include <span>

namespace atl::numeric {

// Whether no element of stored fp16, bf16 or fp32 is NaN or infinite. The bytes may be unaligned; a part of an element
// at their end is not looked at.
bool all_finite_f16(std::span<const std::byte> bytes);
bool all_finite_bf16(std::span<const std::byte> bytes);
bool all_finite_f32(std::span<const std::byte> bytes);

}  // namespace atl::numeric
