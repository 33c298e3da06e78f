#pragma once

#include <cstdint>
#include <vector>

#include "trainer/tensor/tensor.h"

namespace atl::kernels::cpu {

// Elements [begin, begin + count) of a contiguous tensor as the kernels take them: those of an fp32 tensor themselves;
// of one in fp16 or bf16 a copy in the thread's scratch, which is rounded to nearest even into the tensor when the Tile
// ends. So an operation computes in fp32 and rounds once, where it writes, whatever its tensors are kept in. Tiles of a
// thread end in the reverse order of their beginning.
//
//   const Tile x = Tile::read(a, begin, count), y = Tile::read(b, begin, count);
//   const Tile z = Tile::write(out, begin, count);
//   simd.add(x.data(), y.data(), z.data(), count);
class Tile {
  public:
    static Tile read(const tensor::Tensor& tensor, std::int64_t begin, std::int64_t count) {
        return {tensor, begin, count, true, false};
    }
    static Tile write(const tensor::Tensor& tensor, std::int64_t begin, std::int64_t count) {
        return {tensor, begin, count, false, true};
    }
    static Tile update(const tensor::Tensor& tensor, std::int64_t begin, std::int64_t count) {
        return {tensor, begin, count, true, true};
    }
    ~Tile();
    Tile(const Tile&) = delete;
    Tile& operator=(const Tile&) = delete;

    float* data() const { return data_; }  // null of an empty tensor

  private:
    Tile(const tensor::Tensor& tensor, std::int64_t begin, std::int64_t count, bool reads, bool writes);

    float* data_ = nullptr;
    void* kept_ = nullptr;  // where the tensor's own elements begin; null: data_ is that
    tensor::DType dtype_ = tensor::DType::kF32;
    std::int64_t count_ = 0;
    bool writes_ = false;
};

}  // namespace atl::kernels::cpu
