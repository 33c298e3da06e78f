#pragma once

#include <string_view>

namespace atl::numeric {

// Whether this CPU runs code that was compiled for AVX2 with FMA and F16C, and for AVX-512 (F, BW, DQ, VL) beside that.
bool has_avx2();
bool has_avx512();
// The instructions that multiply bf16 at twice the rate of fp32 or more: "amx", "avx512_bf16" of AMD, whose VDPBF16PS
// is as fast as a multiply-add of fp32 with half as many elements (Intel's is half as fast), or "".
std::string_view fast_bf16();

}  // namespace atl::numeric
