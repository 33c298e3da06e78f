#pragma once

#include <cstdint>
#include <string>

#include "trainer/tensor/tensor.h"

namespace atl::kernels::cpu {

// A row-major operand as BLAS sees it.
struct GemmOperand {
    const float* data;
    std::int64_t stride;  // floats between stored rows
    bool transposed;
};

// The same of bf16.
struct Bf16Operand {
    const void* data;
    std::int64_t stride;
    bool transposed;
};

// A library's products. Whatever threads the library has, only the calling one computes.
struct Sgemm {
    // The library and its version, OpenBLAS with the kernels that it chose for this machine: "oneDNN 2.6.3",
    // "OpenBLAS 0.3.21 Haswell".
    std::string (*name)();
    // c [m, n] = op(a) [m, k] · op(b) [k, n], plus c when accumulate.
    void (*multiply)(std::int64_t m, std::int64_t n, std::int64_t k, const GemmOperand& a, const GemmOperand& b,
                     float* c, std::int64_t c_stride, bool accumulate);
    // The same of bf16 operands with sums in fp32, by the processor's own instructions; c is fp32, or bf16 and rounded
    // once. Null where those are not faster than fp32's.
    void (*multiply_bf16)(std::int64_t m, std::int64_t n, std::int64_t k, const Bf16Operand& a, const Bf16Operand& b,
                          void* c, tensor::DType c_dtype, std::int64_t c_stride, bool accumulate);
};

const Sgemm& openblas();
// "" or which kernels OpenBLAS takes that know no AVX2: "Prescott".
std::string openblas_too_old_for_avx2();
// In builds for x86-64.
const Sgemm& onednn();
// OpenBLAS; oneDNN where that has no AVX2 kernels for this processor.
const Sgemm& avx2_sgemm();

}  // namespace atl::kernels::cpu
