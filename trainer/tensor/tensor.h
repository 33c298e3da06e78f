#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "shared/base/check.h"

namespace atl::tensor {

// kF16 and kBF16 are storage formats: what they hold is widened to fp32 before anything is computed with it.
// kInt8 and kNf4 are whole quantised matrices (trainer/quant): their storage is more than their elements, so a tensor
// of them has no sub-ranges and no size in bytes. kU8 is the bytes that such matrices and others lie in. kF64 is for
// sums and what is made of them (kernels/step_scalars.h).
enum class DType : std::uint8_t { kF32, kF16, kBF16, kI32, kU8, kInt8, kNf4, kF64 };

constexpr bool is_quantized(DType dtype) {
    return dtype == DType::kInt8 || dtype == DType::kNf4;
}

// Of `count` neighbouring elements.
constexpr std::int64_t size_bytes(DType dtype, std::int64_t count = 1) {
    if (dtype == DType::kU8) return count;
    if (dtype == DType::kF64) return count * 8;
    return count * (dtype == DType::kF16 || dtype == DType::kBF16 ? 2 : 4);
}

// A non-owning, row-major view: up to four dimensions, the last one dense. Cheap to copy. A const Tensor is a view that
// cannot be pointed elsewhere; the elements it shows may be written. `data` may be a device's memory: kernels/backend.h
// says when the host may touch it.
class Tensor {
  public:
    Tensor() = default;
    Tensor(void* data, DType dtype, std::initializer_list<std::int64_t> shape);

    bool empty() const { return data_ == nullptr; }
    void* data() const { return data_; }
    DType dtype() const { return dtype_; }
    int rank() const { return rank_; }
    std::int64_t dim(int axis) const { return shape_[static_cast<std::size_t>(axis)]; }
    // Elements of the last dimension, and the product of all others.
    std::int64_t columns() const { return rank_ == 0 ? 0 : dim(rank_ - 1); }
    std::int64_t rows() const;
    // Elements from one row to the next: columns() unless this is a slice of columns.
    std::int64_t row_stride() const { return row_stride_; }
    bool contiguous() const { return row_stride_ == columns(); }
    std::int64_t element_count() const { return rows() * columns(); }
    std::int64_t byte_count() const { return size_bytes(dtype_, element_count()); }

    float* f32() const;
    double* f64() const;
    std::int32_t* i32() const;
    // Of a contiguous tensor in host memory, whatever its dtype.
    std::span<std::byte> bytes() const;
    // Where element `index` of the first row begins; null stays null.
    void* at(std::int64_t index) const;

    // The same view of other memory.
    Tensor at_address(void* data) const;
    // The same elements in another shape of as many elements; the tensor must be contiguous.
    Tensor reshape(std::initializer_list<std::int64_t> shape) const;
    // Rows [begin, begin + count) as a matrix [count, columns].
    Tensor row_range(std::int64_t begin, std::int64_t count) const;
    // Columns [begin, begin + count) as a strided matrix [rows, count]. Only matmul takes strided matrices.
    Tensor column_range(std::int64_t begin, std::int64_t count) const;

  private:
    void* data_ = nullptr;
    DType dtype_ = DType::kF32;
    int rank_ = 0;
    std::array<std::int64_t, 4> shape_{};
    std::int64_t row_stride_ = 0;
};

}  // namespace atl::tensor
