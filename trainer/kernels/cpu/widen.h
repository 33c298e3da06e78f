#pragma once

#include <cstdint>

#include "trainer/kernels/cpu/simd_kernels.h"
#include "trainer/tensor/tensor.h"

// Reading numbers that are kept in a storage format (fp16, bf16, int8, NF4). widen() is the only place that decodes
// one.
namespace atl::kernels::cpu {

// A row-major matrix as it is kept. fp32 is a storage format like the others.
struct StoredMatrix {
    const void* data;
    tensor::DType dtype;
    std::int64_t stride;  // elements between rows
    std::int64_t rows;
};

// Rows [row, row + rows) of columns [column, column + columns).
struct MatrixBlock {
    std::int64_t row;
    std::int64_t rows;
    std::int64_t column;
    std::int64_t columns;
};

// Elements [begin, begin + count) of what `data` points to, as fp32; and fp32 into them, rounded to nearest even (fp16
// and bf16 only).
void widen(tensor::DType dtype, const void* data, std::int64_t begin, std::int64_t count, float* to);
void narrow(const float* from, tensor::DType dtype, void* data, std::int64_t begin, std::int64_t count);
// A block of the matrix as a dense one [rows, columns].
void widen(const SimdKernels& simd, const StoredMatrix& matrix, const MatrixBlock& block, float* to);

}  // namespace atl::kernels::cpu
