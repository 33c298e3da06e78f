#pragma once

#include <cstdint>
#include <string>

namespace atl::kernels::cpu {

// A row-major operand as BLAS sees it.
struct GemmOperand {
    const float* data;
    std::int64_t stride;  // floats between stored rows
    bool transposed;
};

// A library's product of fp32 matrices. Whatever threads the library has, only the calling one computes.
struct Sgemm {
    // The library and its version, OpenBLAS with the kernels that it chose for this machine: "oneDNN 2.6.3",
    // "OpenBLAS 0.3.21 Haswell".
    std::string (*name)();
    // c [m, n] = op(a) [m, k] · op(b) [k, n], plus c when accumulate.
    void (*multiply)(std::int64_t m, std::int64_t n, std::int64_t k, const GemmOperand& a, const GemmOperand& b,
                     float* c, std::int64_t c_stride, bool accumulate);
};

const Sgemm& openblas();
// "" or what OpenBLAS has chosen for a processor that it does not know, "Prescott": kernels that know no AVX2.
std::string openblas_too_old_for_avx2();
// In builds for x86-64.
const Sgemm& onednn();
// OpenBLAS; oneDNN where that has no AVX2 kernels for this processor.
const Sgemm& avx2_sgemm();

}  // namespace atl::kernels::cpu
