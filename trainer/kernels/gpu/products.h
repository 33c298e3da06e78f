#pragma once

#include <compare>
#include <map>
#include <string>

#include "shared/base/result.h"
#include "trainer/kernels/gpu/runtime.h"
#include "trainer/tensor/arena.h"
#include "trainer/tensor/tensor.h"

namespace atl::kernels::gpu {

// Products by cuBLASLt, which chooses its kernel once for each kind of product.
class Products {
  public:
    // `workspace`: of the device, for the library.
    static Result<Products> open(tensor::Memory workspace);

    // c = op(a) · op(b), plus c when accumulate. a and b of one format (fp32, fp16 or bf16), c of that or fp32; sums
    // are fp32. Matrices may be strided, and are not empty.
    void multiply(cudaStream_t stream, const tensor::Tensor& a, bool transpose_a, const tensor::Tensor& b,
                  bool transpose_b, const tensor::Tensor& c, bool accumulate);

  private:
    // All that the library's choice depends on.
    struct Operand {
        std::int64_t rows, columns, stride;
        tensor::DType dtype;
        std::uint32_t aligned_bytes;  // its address is a multiple of
        auto operator<=>(const Operand&) const = default;
    };
    struct Kind {
        Operand a, b, c;
        bool transpose_a, transpose_b;
        auto operator<=>(const Kind&) const = default;
    };
    struct Plan;
    using LtHandle = Handle<cublasLtHandle_t, cublasLtDestroy>;

    Products(LtHandle handle, tensor::Memory workspace)
        : handle_(std::move(handle)), workspace_(std::move(workspace)) {}
    static Operand operand(const tensor::Tensor& matrix);
    static std::string describe(const Kind& kind);
    const cublasLtMatmulAlgo_t& choose(const Kind& kind, const Plan& plan);

    LtHandle handle_;
    tensor::Memory workspace_;
    std::map<Kind, cublasLtMatmulAlgo_t> chosen_;
};

}  // namespace atl::kernels::gpu
