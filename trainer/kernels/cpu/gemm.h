#pragma once

#include <cstdint>
#include <vector>

#include "trainer/kernels/cpu/sgemm.h"
#include "trainer/kernels/cpu/thread_pool.h"
#include "trainer/kernels/cpu/widen.h"

namespace atl::kernels::cpu {

// An operand in any storage format.
struct StoredOperand {
    StoredMatrix matrix;
    bool transposed;
};

// c [m, n] = op(a) [m, k] · op(b) [k, n], plus c when accumulate.
struct GemmTask {
    std::int64_t m, n, k;
    GemmOperand a;
    StoredOperand b;
    float* c;
    std::int64_t c_stride;
    bool accumulate;
};

// Matrix products by a library, on one thread a tile; the tiles depend on the shape alone, so the bits do not depend on
// the number of threads. A tile takes the right operand block by block. A block that is not fp32 is widened into
// scratch that fits a core's cache: the whole matrix never exists in fp32. fp32 goes through the same blocks, so a
// stored matrix gives the bits that its fp32 copy would.
class Gemm {
  public:
    Gemm(ThreadPool& pool, const SimdKernels& simd, const Sgemm& sgemm);
    void multiply(const GemmTask& task);

  private:
    struct Tile;
    void warm_up();
    void run_tile(const GemmTask& task, const Tile& tile, float* scratch) const;

    ThreadPool& pool_;
    const SimdKernels& simd_;
    const Sgemm& sgemm_;
    std::vector<float> scratch_;  // a block for each thread
};

}  // namespace atl::kernels::cpu
