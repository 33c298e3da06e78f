#include <algorithm>

#include "trainer/kernels/gpu/products.h"

namespace atl::kernels::gpu {
namespace {

using tensor::DType;
using tensor::Tensor;

#if defined(__HIP__)
constexpr const char* kLibrary = "hipBLASLt";
#else
constexpr const char* kLibrary = "cuBLASLt";
#endif

void must(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS)
        check(false,
              std::string(kLibrary) + " failed: " + what + ": status " + std::to_string(static_cast<int>(status)));
}

cudaDataType_t data_type(DType dtype) {
    check(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16, "products are of fp32, fp16 and bf16");
    if (dtype == DType::kF32) return CUDA_R_32F;
    return dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
}

using Desc = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// The library has matrices by columns, so it sees a row-major matrix transposed.
Layout make_layout(const Tensor& matrix) {
    cublasLtMatrixLayout_t layout = nullptr;
    must(cublasLtMatrixLayoutCreate(&layout, data_type(matrix.dtype()), static_cast<std::uint64_t>(matrix.columns()),
                                    static_cast<std::uint64_t>(matrix.rows()), matrix.row_stride()),
         "a layout");
    return Layout(layout);
}

Desc make_desc(bool transpose_first, bool transpose_second) {
    cublasLtMatmulDesc_t desc = nullptr;
    must(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a description");
    const cublasOperation_t first = transpose_first ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = transpose_second ? CUBLAS_OP_T : CUBLAS_OP_N;
    must(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)), "an attribute");
    must(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)), "an attribute");
    return Desc(desc);
}

template <class Value>
void prefer(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    must(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)), "a preference");
}

const char* name_of(DType dtype) {
    if (dtype == DType::kF32) return "fp32";
    return dtype == DType::kF16 ? "fp16" : "bf16";
}

}  // namespace

std::string Products::describe(const Kind& kind) {
    const auto matrix = [](const Operand& operand, bool transposed) {
        return std::string(name_of(operand.dtype)) + " [" + std::to_string(operand.rows) + ", " +
               std::to_string(operand.columns) + "]" + (transposed ? " transposed" : "");
    };
    return matrix(kind.a, kind.transpose_a) + " · " + matrix(kind.b, kind.transpose_b) + " into " +
           matrix(kind.c, false);
}

// cᵀ = op(b)ᵀ · op(a)ᵀ, each as the library sees it.
struct Products::Plan {
    Desc desc;
    Layout b, a, c;
};

Result<Products> Products::open(tensor::Memory workspace) {
    cublasLtHandle_t handle = nullptr;
    if (const cublasStatus_t status = cublasLtCreate(&handle); status != CUBLAS_STATUS_SUCCESS)
        return unavailable(std::string(kLibrary) + " does not start: status " +
                           std::to_string(static_cast<int>(status)));
    return Products(LtHandle(handle), std::move(workspace));
}

Products::Operand Products::operand(const Tensor& matrix) {
    constexpr std::uintptr_t kMost = 256;
    const auto address = reinterpret_cast<std::uintptr_t>(matrix.data());
    const std::uintptr_t aligned = std::min(kMost, address & (~address + 1));
    return {matrix.rows(), matrix.columns(), matrix.row_stride(), matrix.dtype(), static_cast<std::uint32_t>(aligned)};
}

const cublasLtMatmulAlgo_t& Products::choose(const Kind& kind, const Plan& plan) {
    const auto [entry, is_new] = chosen_.try_emplace(kind);
    if (!is_new) return entry->second;
    cublasLtMatmulPreference_t created = nullptr;
    must(cublasLtMatmulPreferenceCreate(&created), "a preference");
    const Preference preference(created);
    prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_.size_bytes()));
#if !defined(__HIP__)  // which has no more of these
    // Parts of a long sum are added in fp32, never in the format of c.
    prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kind.b.aligned_bytes);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kind.a.aligned_bytes);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kind.c.aligned_bytes);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kind.c.aligned_bytes);
#endif
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    must(cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.desc.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                        plan.c.get(), preference.get(), 1, &result, &found),
         "the choice of a kernel");
    if (found == 0) check(false, std::string(kLibrary) + " has no kernel for " + describe(kind));
    entry->second = result.algo;
    return entry->second;
}

void Products::multiply(cudaStream_t stream, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
                        const Tensor& c, bool accumulate) {
    const Plan plan{make_desc(transpose_b, transpose_a), make_layout(b), make_layout(a), make_layout(c)};
    const cublasLtMatmulAlgo_t& algo = choose({operand(a), operand(b), operand(c), transpose_a, transpose_b}, plan);
    const float alpha = 1.0F, beta = accumulate ? 1.0F : 0.0F;
    must(cublasLtMatmul(handle_.get(), plan.desc.get(), &alpha, b.data(), plan.b.get(), a.data(), plan.a.get(), &beta,
                        c.data(), plan.c.get(), c.data(), plan.c.get(), &algo, workspace_.data(),
                        static_cast<std::size_t>(workspace_.size_bytes()), stream),
         "a product");
}

}  // namespace atl::kernels::gpu
