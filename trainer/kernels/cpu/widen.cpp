#include "trainer/kernels/cpu/widen.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "shared/base/check.h"
#include "shared/numeric/conversions.h"
#include "trainer/quant/int8.h"
#include "trainer/quant/nf4.h"

namespace atl::kernels::cpu {

using tensor::DType;

void widen(DType dtype, const void* data, std::int64_t begin, std::int64_t count, float* to) {
    const auto size = static_cast<std::size_t>(count);
    const auto* const from = static_cast<const std::byte*>(data) + tensor::size_bytes(dtype, begin);
    if (dtype == DType::kF32) {
        std::memcpy(to, from, size * sizeof(float));
    } else {
        check(dtype == DType::kF16 || dtype == DType::kBF16, "not a storage format of weights");
        const numeric::Conversions& loops = numeric::conversions();
        (dtype == DType::kF16 ? loops.widen_f16 : loops.widen_bf16)(to, from, size);
    }
}

void narrow(const float* from, DType dtype, void* data, std::int64_t begin, std::int64_t count) {
    check(dtype == DType::kF16 || dtype == DType::kBF16, "weights are not rounded to this format");
    const numeric::Conversions& loops = numeric::conversions();
    (dtype == DType::kF16 ? loops.narrow_f16 : loops.narrow_bf16)(
        static_cast<std::byte*>(data) + tensor::size_bytes(dtype, begin), from, static_cast<std::size_t>(count));
}

namespace {

// Elements [begin, begin + count) of an int8 matrix, all of one row.
void widen_int8(const SimdKernels& simd, const StoredMatrix& matrix, std::int64_t begin, std::int64_t count,
                float* to) {
    const auto* const storage = static_cast<const std::byte*>(matrix.data);
    const quant::Int8Layout layout(matrix.rows, matrix.stride);
    float factor = 0;
    std::memcpy(&factor, storage + begin / matrix.stride * static_cast<std::int64_t>(sizeof factor), sizeof factor);
    simd.int8_to_f32(reinterpret_cast<const std::int8_t*>(storage + layout.codes + begin), factor, to, count);
}

// Elements [begin, begin + count) of an NF4 matrix, block by block.
void widen_nf4(const SimdKernels& simd, const StoredMatrix& matrix, std::int64_t begin, std::int64_t count, float* to) {
    const auto* const storage = static_cast<const std::byte*>(matrix.data);
    const quant::Nf4Layout layout(matrix.rows * matrix.stride);
    const auto* const codes = reinterpret_cast<const std::uint8_t*>(storage + layout.codes);
    for (std::int64_t done = 0; done < count;) {
        const std::int64_t at = begin + done, block = at / quant::kNf4Block;
        const std::int64_t here = std::min(count - done, (block + 1) * quant::kNf4Block - at);
        const float factor = quant::nf4_scale(storage, layout, block);
        std::array<float, 16> values{};
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = quant::kNf4Values[i] * factor;
        simd.nf4_to_f32(codes, at, values.data(), to + done, here);
        done += here;
    }
}

}  // namespace

void widen(const SimdKernels& simd, const StoredMatrix& matrix, const MatrixBlock& block, float* to) {
    if (tensor::is_quantized(matrix.dtype)) {
        const auto widen_row = matrix.dtype == DType::kInt8 ? widen_int8 : widen_nf4;
        for (std::int64_t row = 0; row < block.rows; ++row) {
            widen_row(simd, matrix, (block.row + row) * matrix.stride + block.column, block.columns,
                      to + row * block.columns);
        }
        return;
    }
    for (std::int64_t row = 0; row < block.rows; ++row) {
        widen(matrix.dtype, matrix.data, (block.row + row) * matrix.stride + block.column, block.columns,
              to + row * block.columns);
    }
}

}  // namespace atl::kernels::cpu
