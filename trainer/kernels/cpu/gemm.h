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

// c [m, n] = op(a) [m, k] · op(b) [k, n], plus c when accumulate; c is fp32, fp16 or bf16. Operands are multiplied in
// the format of a (fp32, fp16 or bf16), to which b is rounded where it has more digits; sums are fp32.
struct GemmTask {
    std::int64_t m, n, k;
    StoredOperand a;
    StoredOperand b;
    void* c;
    tensor::DType c_dtype;
    std::int64_t c_stride;
    bool accumulate;
};

// Matrix products by a library, on one thread a tile; the tiles depend on the shape alone, so the bits do not depend on
// the number of threads. A tile takes the operands block by block. A block that is not fp32 is widened into
// scratch that fits a core's cache: the whole matrix never exists in fp32. fp32 goes through the same blocks, so a
// stored matrix gives the bits that its fp32 copy would. Products in bf16 go to the processor's own instructions where
// those are faster than fp32's (Sgemm::multiply_bf16).
class Gemm {
  public:
    // `products`: the format that most will be in, for which its memory is there from the beginning.
    Gemm(ThreadPool& pool, const SimdKernels& simd, const Sgemm& sgemm, tensor::DType products);
    void multiply(const GemmTask& task);

  private:
    struct Tile;
    struct Scratch;
    void run_tile(const GemmTask& task, const Tile& tile, const Scratch& scratch) const;
    void run_tile_in_bf16(const GemmTask& task, const Tile& tile) const;

    ThreadPool& pool_;
    const SimdKernels& simd_;
    const Sgemm& sgemm_;
    std::vector<float> scratch_;        // a block of b for each thread
    std::vector<float> other_scratch_;  // a block of a and a tile of c, once one of them is not fp32
};

}  // namespace atl::kernels::cpu
