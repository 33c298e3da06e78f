#pragma once

namespace atl::numeric {

// Whether this CPU runs code that was compiled for AVX2 with FMA and F16C, and for AVX-512 (F, BW, DQ, VL) beside that.
bool has_avx2();
bool has_avx512();
// Whether it multiplies bf16 at twice the rate of fp32 or more: AMX, or AVX512-BF16 of AMD, whose VDPBF16PS is as fast
// as a multiply-add of fp32 with half as many elements. Intel's is half as fast.
bool has_fast_bf16();

}  // namespace atl::numeric
