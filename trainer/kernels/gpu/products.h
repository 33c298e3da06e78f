#pragma once

#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "trainer/kernels/gpu/runtime.h"
#include "trainer/tensor/arena.h"
#include "trainer/tensor/tensor.h"

namespace atl::kernels::gpu {

// Products of equal shape, side by side: `count` of them, each operand so many elements after the one before.
struct Batch {
    std::int64_t count = 1;
    std::int64_t a_step = 0, b_step = 0, c_step = 0;
};

// Products by cuBLASLt. What describes a product to the library, and the kernel that it chooses, are made once for each
// kind of product.
class Products {
  public:
    // `workspace`: of the device, for the library.
    static Result<Products> open(tensor::Memory workspace);
    Products(Products&&) noexcept;
    ~Products();

    // c = factor · op(a) · op(b) + bias + addend, plus c when accumulate. a and b of one format (fp32, fp16 or bf16), c
    // of that or fp32; sums are fp32 and rounded once. Matrices may be strided, and are not empty. In a batch a, b and
    // c are the first ones.
    struct Terms {
        float factor = 1.0F;
        bool accumulate = false;
        tensor::Tensor bias = {}, addend = {};  // in the format of c; may be empty, and not with a batch
        Batch batch = {};
    };
    void multiply(cudaStream_t stream, const tensor::Tensor& a, bool transpose_a, const tensor::Tensor& b,
                  bool transpose_b, const tensor::Tensor& c, const Terms& terms);
    // Whether the library has a kernel that does all of this at once.
    bool offers(const tensor::Tensor& a, bool transpose_a, const tensor::Tensor& b, bool transpose_b,
                const tensor::Tensor& c, const Terms& terms);

  private:
    // All that a plan depends on.
    struct Operand {
        std::int64_t rows, columns, stride, step;
        tensor::DType dtype;
        std::uint32_t aligned_bytes;  // its addresses are multiples of
        auto operator<=>(const Operand&) const = default;
    };
    struct Kind {
        Operand a, b, c, addend;  // addend: c where there is none
        bool transpose_a, transpose_b;
        bool has_bias;
        std::int64_t count;
        auto operator<=>(const Kind&) const = default;
    };
    struct Plan;
    using LtHandle = Handle<cublasLtHandle_t, cublasLtDestroy>;

    Products(LtHandle handle, tensor::Memory workspace);
    static Operand operand(const tensor::Tensor& matrix, std::int64_t step);
    static std::string describe(const Kind& kind);
    static Plan make_plan(const Kind& kind);
    const Plan& plan(const Kind& kind);
    static Kind kind_of(const tensor::Tensor& a, bool transpose_a, const tensor::Tensor& b, bool transpose_b,
                        const tensor::Tensor& c, const Terms& terms);
    std::optional<cublasLtMatmulAlgo_t> choose(const Kind& kind, const Plan& plan) const;

    LtHandle handle_;
    tensor::Memory workspace_;
    std::map<Kind, std::size_t> numbers_;  // of plans_; clang 15 crashes on a map of plans, for HIP
    std::vector<std::unique_ptr<const Plan>> plans_;
};

}  // namespace atl::kernels::gpu
