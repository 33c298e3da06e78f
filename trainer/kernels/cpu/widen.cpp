#include "trainer/kernels/cpu/widen.h"

#include <cstring>

#include "shared/base/check.h"

namespace atl::kernels::cpu {

using tensor::DType;

void widen(const Loops& loops, DType dtype, const void* data, std::int64_t begin, std::int64_t count, float* to) {
    switch (dtype) {
        case DType::kF32:
            std::memcpy(to, static_cast<const float*>(data) + begin, static_cast<std::size_t>(count) * sizeof(float));
            return;
        case DType::kF16:
            return loops.f16_to_f32(static_cast<const std::uint16_t*>(data) + begin, to, count);
        case DType::kBF16:
            return loops.bf16_to_f32(static_cast<const std::uint16_t*>(data) + begin, to, count);
        case DType::kI32:
            break;
    }
    check(false, "not a storage format of weights");
}

void narrow(const Loops& loops, const float* from, DType dtype, void* data, std::int64_t begin, std::int64_t count) {
    check(dtype == DType::kF16 || dtype == DType::kBF16, "weights are not rounded to this format");
    auto* const to = static_cast<std::uint16_t*>(data) + begin;
    (dtype == DType::kF16 ? loops.f32_to_f16 : loops.f32_to_bf16)(from, to, count);
}

void widen(const Loops& loops, const StoredMatrix& matrix, const MatrixBlock& block, float* to) {
    for (std::int64_t row = 0; row < block.rows; ++row) {
        widen(loops, matrix.dtype, matrix.data, (block.row + row) * matrix.stride + block.column, block.columns,
              to + row * block.columns);
    }
}

}  // namespace atl::kernels::cpu
