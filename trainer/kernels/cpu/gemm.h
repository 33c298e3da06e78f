#pragma once

#include <cstdint>

#include "trainer/kernels/cpu/thread_pool.h"

namespace atl::kernels::cpu {

// A row-major operand as BLAS sees it.
struct GemmOperand {
    const float* data;
    std::int64_t stride;  // floats between stored rows
    bool transposed;
};

// c [m, n] = op(a) [m, k] · op(b) [k, n], plus c when accumulate. OpenBLAS on one thread a tile; the tiles depend on
// the shape alone, so the bits do not depend on the number of threads.
void gemm(ThreadPool& pool, std::int64_t m, std::int64_t n, std::int64_t k, GemmOperand a, GemmOperand b, float* c,
          std::int64_t c_stride, bool accumulate);

// OpenBLAS' name for the kernels it chose for this machine: "SkylakeX", "Haswell", …
const char* blas_kernels();

}  // namespace atl::kernels::cpu
