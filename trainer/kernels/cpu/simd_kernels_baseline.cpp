#define ATOLL_INSTRUCTION_SET baseline
#include "trainer/kernels/cpu/simd_kernels.inl"
