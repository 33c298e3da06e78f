#pragma once

#include "shared/numeric/float16.h"
#include "trainer/kernels/gpu/runtime.h"
#include "trainer/tensor/tensor.h"

namespace atl::kernels::gpu {

// A tensor's elements as kernels take them, whatever format they are kept in: fp32 when they are read, rounded once, to
// nearest even, when they are written. The format is the same for all threads, so the branches cost little.
class Elements {
  public:
    Elements() = default;
    explicit Elements(const tensor::Tensor& tensor) : data_(tensor.data()), dtype_(tensor.dtype()) {
        check(tensor.empty() || dtype_ == tensor::DType::kF32 || is_half(), "kernels take fp32, fp16 and bf16");
    }

    __device__ bool empty() const { return data_ == nullptr; }
    __device__ bool is_wide() const { return dtype_ == tensor::DType::kF32; }
    __device__ float load(std::int64_t index) const {
        if (is_wide()) return static_cast<const float*>(data_)[index];
        const std::uint16_t bits = static_cast<const std::uint16_t*>(data_)[index];
        return dtype_ == tensor::DType::kBF16 ? numeric::widen_bf16(bits) : numeric::widen_f16(bits);
    }
    __device__ void store(std::int64_t index, float value) const {
        if (is_wide()) {
            static_cast<float*>(data_)[index] = value;
        } else {
            store_bits(index,
                       dtype_ == tensor::DType::kBF16 ? numeric::narrow_bf16(value) : numeric::narrow_f16(value));
        }
    }
    // Of what is kept in fp16 or bf16.
    __device__ void store_bits(std::int64_t index, std::uint16_t bits) const {
        static_cast<std::uint16_t*>(data_)[index] = bits;
    }

  protected:
    __device__ bool is_bf16() const { return dtype_ == tensor::DType::kBF16; }
    __device__ void* data() const { return data_; }
    // As it comes back once it was stored.
    __device__ float rounded(float value) const {
        if (is_wide()) return value;
        return is_bf16() ? numeric::widen_bf16(numeric::narrow_bf16(value))
                         : numeric::widen_f16(numeric::narrow_f16(value));
    }

  private:
    bool is_half() const { return dtype_ == tensor::DType::kF16 || dtype_ == tensor::DType::kBF16; }

    void* data_ = nullptr;
    tensor::DType dtype_ = tensor::DType::kF32;
};

}  // namespace atl::kernels::gpu
