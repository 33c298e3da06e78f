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

// Kept at most. A training has some hundreds of kinds, but a generation new ones with each token.
constexpr std::size_t kPlansMax = 4096;

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

void set(const Layout& layout, cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    must(cublasLtMatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof(value)), "a layout's attribute");
}

void set(const Desc& desc, cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    must(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof(value)), "an attribute");
}

Desc make_desc(bool transpose_first, bool transpose_second) {
    cublasLtMatmulDesc_t desc = nullptr;
    must(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a description");
    Desc made(desc);
    set(made, CUBLASLT_MATMUL_DESC_TRANSA, transpose_first ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(made, CUBLASLT_MATMUL_DESC_TRANSB, transpose_second ? CUBLAS_OP_T : CUBLAS_OP_N);
    return made;
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
           matrix(kind.c, false) + (kind.has_bias ? " with a bias" : "") +
           (kind.count > 1 ? ", " + std::to_string(kind.count) + " at once" : "");
}

// cᵀ = op(b)ᵀ · op(a)ᵀ, each as the library sees it.
struct Products::Plan {
    Desc desc;
    Layout b, a, addend, c;
    std::optional<cublasLtMatmulAlgo_t> algo{};  // none: the library has no kernel
};

Products::Products(LtHandle handle, tensor::Memory workspace)
    : handle_(std::move(handle)), workspace_(std::move(workspace)) {}
Products::Products(Products&&) noexcept = default;
Products::~Products() = default;

Result<Products> Products::open(tensor::Memory workspace) {
    cublasLtHandle_t handle = nullptr;
    if (const cublasStatus_t status = cublasLtCreate(&handle); status != CUBLAS_STATUS_SUCCESS)
        return unavailable(std::string(kLibrary) + " does not start: status " +
                           std::to_string(static_cast<int>(status)));
    return Products(LtHandle(handle), std::move(workspace));
}

Products::Operand Products::operand(const Tensor& matrix, std::int64_t step) {
    constexpr std::uintptr_t kMost = 256;
    const auto bits = reinterpret_cast<std::uintptr_t>(matrix.data()) |
                      static_cast<std::uintptr_t>(tensor::size_bytes(matrix.dtype(), step)) | kMost;
    return {.rows = matrix.rows(),
            .columns = matrix.columns(),
            .stride = matrix.row_stride(),
            .step = step,
            .dtype = matrix.dtype(),
            .aligned_bytes = static_cast<std::uint32_t>(bits & (~bits + 1))};
}

Products::Plan Products::make_plan(const Kind& kind) {
    // The library has matrices by columns, so it sees a row-major matrix transposed.
    const auto layout = [&](const Operand& matrix) {
        cublasLtMatrixLayout_t created = nullptr;
        must(cublasLtMatrixLayoutCreate(&created, data_type(matrix.dtype), static_cast<std::uint64_t>(matrix.columns),
                                        static_cast<std::uint64_t>(matrix.rows), matrix.stride),
             "a layout");
        Layout made(created);
        if (kind.count > 1) {
            set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(kind.count));
            set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.step);
        }
        return made;
    };
    Plan plan{.desc = make_desc(kind.transpose_b, kind.transpose_a),
              .b = layout(kind.b),
              .a = layout(kind.a),
              .addend = layout(kind.addend),
              .c = layout(kind.c)};
    if (kind.has_bias) {
        set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
        set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(kind.c.dtype));
    }
    return plan;
}

const Products::Plan& Products::plan(const Kind& kind) {
    const auto found = numbers_.find(kind);
    if (found != numbers_.end()) return *plans_[found->second];
    if (plans_.size() == kPlansMax) {
        numbers_.clear();
        plans_.clear();
    }
    auto made = std::make_unique<Plan>(make_plan(kind));
    made->algo = choose(kind, *made);
    numbers_.emplace(kind, plans_.size());
    plans_.push_back(std::move(made));
    return *plans_.back();
}

std::optional<cublasLtMatmulAlgo_t> Products::choose([[maybe_unused]] const Kind& kind, const Plan& plan) const {
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
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kind.addend.aligned_bytes);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kind.c.aligned_bytes);
#endif
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.desc.get(), plan.b.get(), plan.a.get(), plan.addend.get(),
                                       plan.c.get(), preference.get(), 1, &result, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
    must(status, "the choice of a kernel");
    if (found == 0) return std::nullopt;
    return result.algo;
}

Products::Kind Products::kind_of(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                                 const Terms& terms) {
    const Batch& batch = terms.batch;
    const Operand result = operand(c, batch.c_step);
    return {.a = operand(a, batch.a_step),
            .b = operand(b, batch.b_step),
            .c = result,
            .addend = terms.addend.empty() ? result : operand(terms.addend, 0),
            .transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .has_bias = !terms.bias.empty(),
            .count = batch.count};
}

bool Products::offers(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                      const Terms& terms) {
    return plan(kind_of(a, transpose_a, b, transpose_b, c, terms)).algo.has_value();
}

void Products::multiply(cudaStream_t stream, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
                        const Tensor& c, const Terms& terms) {
    const Kind kind = kind_of(a, transpose_a, b, transpose_b, c, terms);
    const Plan& with = plan(kind);
    if (!with.algo) check(false, std::string(kLibrary) + " has no kernel for " + describe(kind));
    if (kind.has_bias) set(with.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, terms.bias.data());
    const Tensor& addend = terms.addend.empty() ? c : terms.addend;
    const float beta = terms.accumulate || !terms.addend.empty() ? 1.0F : 0.0F;
    must(cublasLtMatmul(handle_.get(), with.desc.get(), &terms.factor, b.data(), with.b.get(), a.data(), with.a.get(),
                        &beta, addend.data(), with.addend.get(), c.data(), with.c.get(), &*with.algo, workspace_.data(),
                        static_cast<std::size_t>(workspace_.size_bytes()), stream),
         "a product");
}

}  // namespace atl::kernels::gpu
