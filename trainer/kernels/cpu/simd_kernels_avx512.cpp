#define ATOLL_INSTRUCTION_SET avx512
#include "trainer/kernels/cpu/simd_kernels.inl"
