#pragma once

namespace atl::numeric {

// Whether this CPU runs code that was compiled for AVX2 with FMA and F16C, and for AVX-512 (F, BW, DQ, VL) beside that.
bool has_avx2();
bool has_avx512();

}  // namespace atl::numeric
