// cuBLASLt's part of the shim: a product is three loops.

#include <cstring>
#include <vector>

#include "shared/base/check.h"
#include "shared/numeric/float16.h"
#include "trainer/kernels/gpu/runtime.h"

struct ShimLt {};
struct ShimMatmulDesc {
    cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void* bias = nullptr;  // of each row of the result
    cudaDataType_t bias_type = CUDA_R_32F;
};
struct ShimLayout {
    cudaDataType_t type;
    std::int64_t rows, columns, leading;
    std::int64_t count = 1, step = 0;  // of a batch
};
struct ShimPreference {};

namespace {

namespace numeric = atl::numeric;

// A matrix by columns.
struct Matrix {
    ShimLayout layout;
    void* data;

    float load(std::int64_t row, std::int64_t column) const {
        const std::int64_t at = column * layout.leading + row;
        if (layout.type == CUDA_R_32F) return static_cast<const float*>(data)[at];
        const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[at];
        return layout.type == CUDA_R_16F ? numeric::widen_f16(bits) : numeric::widen_bf16(bits);
    }
    Matrix in_batch(std::int64_t number) const {
        const std::int64_t bytes = number * layout.step * (layout.type == CUDA_R_32F ? 4 : 2);
        return {layout, static_cast<std::byte*>(data) + bytes};
    }
    void store(std::int64_t row, std::int64_t column, float value) const {
        const std::int64_t at = column * layout.leading + row;
        if (layout.type == CUDA_R_32F) {
            static_cast<float*>(data)[at] = value;
        } else {
            static_cast<std::uint16_t*>(data)[at] =
                layout.type == CUDA_R_16F ? numeric::narrow_f16(value) : numeric::narrow_bf16(value);
        }
    }
};

// Four sums at once, which the processor adds up side by side.
double dot(const float* x, const float* y, std::int64_t count) {
    constexpr std::int64_t kSums = 4;
    double sums[kSums] = {};
    std::int64_t k = 0;
    for (; k + kSums <= count; k += kSums) {
        for (std::int64_t i = 0; i < kSums; ++i)
            sums[i] += static_cast<double>(x[k + i]) * static_cast<double>(y[k + i]);
    }
    for (; k < count; ++k) sums[0] += static_cast<double>(x[k]) * static_cast<double>(y[k]);
    return sums[0] + sums[1] + sums[2] + sums[3];
}

struct Product {
    ShimMatmulDesc desc;
    Matrix a, b, c, d;
    float alpha, beta;

    void run() const {
        for (std::int64_t number = 0; number < d.layout.count; ++number)
            Product{desc, a.in_batch(number), b.in_batch(number), c.in_batch(number), d.in_batch(number), alpha, beta}
                .run_one();
    }

  private:
    // The rows of op(a) one after the other, and the columns of op(b).
    static std::vector<float> read(const Matrix& matrix, bool by_columns, std::int64_t inner) {
        const std::int64_t vectors = by_columns ? matrix.layout.columns : matrix.layout.rows;
        std::vector<float> values;
        for (std::int64_t vector = 0; vector < vectors; ++vector) {
            for (std::int64_t k = 0; k < inner; ++k)
                values.push_back(by_columns ? matrix.load(k, vector) : matrix.load(vector, k));
        }
        return values;
    }

    double bias(std::int64_t row) const {
        if (desc.epilogue != CUBLASLT_EPILOGUE_BIAS) return 0;
        return static_cast<double>(Matrix{{desc.bias_type, d.layout.rows, 1, d.layout.rows}, desc.bias}.load(row, 0));
    }

    void run_one() const {
        const std::int64_t inner = desc.a == CUBLAS_OP_N ? a.layout.columns : a.layout.rows;
        const std::vector<float> rows = read(a, desc.a == CUBLAS_OP_T, inner);
        const std::vector<float> columns = read(b, desc.b == CUBLAS_OP_N, inner);
        for (std::int64_t column = 0; column < d.layout.columns; ++column) {
            for (std::int64_t row = 0; row < d.layout.rows; ++row) {
                const float *const x = rows.data() + row * inner, *const y = columns.data() + column * inner;
                const double sum = dot(x, y, inner);
                const double before = beta == 0.0F ? 0.0 : static_cast<double>(beta * c.load(row, column));
                d.store(row, column, static_cast<float>(static_cast<double>(alpha) * sum + before + bias(row)));
            }
        }
    }
};

void check_product(const Product& product) {
    const auto rows = [](const ShimLayout& x, cublasOperation_t op) { return op == CUBLAS_OP_N ? x.rows : x.columns; };
    const auto columns = [](const ShimLayout& x, cublasOperation_t op) {
        return op == CUBLAS_OP_N ? x.columns : x.rows;
    };
    const ShimLayout &a = product.a.layout, &b = product.b.layout, &d = product.d.layout;
    atl::check(rows(a, product.desc.a) == d.rows && columns(b, product.desc.b) == d.columns &&
                   columns(a, product.desc.a) == rows(b, product.desc.b),
               "cublasLtMatmul: the layouts do not fit");
    for (const ShimLayout& x : {a, b, d}) {
        atl::check(x.leading >= x.rows, "cublasLtMatmul: a leading dimension");
        atl::check(x.count == d.count, "cublasLtMatmul: the counts of the batch differ");
    }
    atl::check(product.desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT || product.desc.bias_type == d.type,
               "cublasLtMatmul: a bias of another format than the result's");
    atl::check(
        product.c.layout.type == d.type && product.c.layout.rows == d.rows && product.c.layout.columns == d.columns,
        "cublasLtMatmul: the addend and the result must have the same format and shape");
    atl::check(d.count == 1 || d.step >= d.rows, "cublasLtMatmul: results of a batch overlap");
    // What cuBLASLt offers with fp32 sums.
    atl::check(a.type == b.type && (d.type == a.type || d.type == CUDA_R_32F), "cublasLtMatmul: these formats");
}

std::int64_t descriptions = 0;

}  // namespace

std::int64_t atl::kernels::gpu::shim::product_descriptions() {
    return descriptions;
}

std::size_t cublasLtGetVersion() {
    return 0;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new ShimLt;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t) {
    ++descriptions;
    *desc = new ShimMatmulDesc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
    void* const members[] = {&desc->a, &desc->b, &desc->epilogue, &desc->bias, &desc->bias_type};
    std::memcpy(members[attribute], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
    *layout = new ShimLayout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
    if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) {
        std::memcpy(&layout->step, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    std::int32_t count = 0;
    std::memcpy(&count, value, sizeof(count));
    layout->count = count;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = new ShimPreference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
    *results = {};
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*, std::size_t,
                              cudaStream_t stream) {
    const Product product{*desc,
                          {*a_layout, const_cast<void*>(a)},
                          {*b_layout, const_cast<void*>(b)},
                          {*c_layout, const_cast<void*>(c)},
                          {*d_layout, d},
                          *static_cast<const float*>(alpha),
                          *static_cast<const float*>(beta)};
    check_product(product);
    const cudaError_t error = atl::kernels::gpu::shim::enqueue(stream, [product] { product.run(); });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
