#include "trainer/tensor/tensor.h"

#include <algorithm>

namespace atl::tensor {

Tensor::Tensor(void* data, DType dtype, std::initializer_list<std::int64_t> shape)
    : data_(data), dtype_(dtype), rank_(static_cast<int>(shape.size())) {
    check(shape.size() >= 1 && shape.size() <= 4, "a tensor has one to four dimensions");
    std::copy(shape.begin(), shape.end(), shape_.begin());
    row_stride_ = columns();
}

std::int64_t Tensor::rows() const {
    std::int64_t rows = rank_ == 0 ? 0 : 1;
    for (int axis = 0; axis + 1 < rank_; ++axis) rows *= dim(axis);
    return rows;
}

float* Tensor::f32() const {
    check(dtype_ == DType::kF32, "the tensor does not hold fp32");
    return static_cast<float*>(data_);
}

double* Tensor::f64() const {
    check(dtype_ == DType::kF64, "the tensor does not hold fp64");
    return static_cast<double*>(data_);
}

std::int32_t* Tensor::i32() const {
    check(dtype_ == DType::kI32, "the tensor does not hold int32");
    return static_cast<std::int32_t*>(data_);
}

std::span<std::byte> Tensor::bytes() const {
    check(contiguous(), "only contiguous tensors have their bytes in a row");
    return {static_cast<std::byte*>(data_), static_cast<std::size_t>(byte_count())};
}

void* Tensor::at(std::int64_t index) const {
    check(!is_quantized(dtype_), "a quantised matrix has no parts");
    return data_ == nullptr ? nullptr : static_cast<std::byte*>(data_) + size_bytes(dtype_, index);
}

Tensor Tensor::at_address(void* data) const {
    Tensor other = *this;
    other.data_ = data;
    return other;
}

Tensor Tensor::reshape(std::initializer_list<std::int64_t> shape) const {
    const Tensor other(data_, dtype_, shape);
    check(contiguous() && other.element_count() == element_count(), "reshape keeps the elements");
    return other;
}

Tensor Tensor::row_range(std::int64_t begin, std::int64_t count) const {
    check(begin >= 0 && count >= 0 && begin + count <= rows(), "row range outside the tensor");
    Tensor view = *this;
    view.data_ = at(begin * row_stride_);
    view.rank_ = 2;
    view.shape_ = {count, columns(), 0, 0};
    return view;
}

Tensor Tensor::column_range(std::int64_t begin, std::int64_t count) const {
    check(begin >= 0 && count >= 0 && begin + count <= columns(), "column range outside the tensor");
    Tensor view = *this;
    view.data_ = at(begin);
    view.rank_ = 2;
    view.shape_ = {rows(), count, 0, 0};
    return view;
}

}  // namespace atl::tensor
