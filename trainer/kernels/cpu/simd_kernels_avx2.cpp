#define ATOLL_INSTRUCTION_SET avx2
#include "trainer/kernels/cpu/simd_kernels.inl"
