#define ATOLL_INSTRUCTION_SET baseline
#include "trainer/kernels/cpu/loops.inl"
