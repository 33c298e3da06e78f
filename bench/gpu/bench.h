#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "trainer/kernels/backend.h"

// What kernel_bench measures and with what. Legend: N tokens, C channels, F feed-forward channels, V vocabulary.
namespace atl::bench {

using kernels::AttentionShape;
using tensor::DType;
using tensor::Tensor;

// The shapes of one run: those of Llama-2-7B with 4,096 tokens, or small ones that a CPU gets through in seconds.
struct Shapes {
    std::int64_t tokens, channels, forward, vocabulary;
    std::int64_t flat;     // elements of a flat range: of an optimizer's step, of a conversion
    std::int64_t product;  // rows, columns and depth of the product that others are compared with
    AttentionShape attention_852m, attention_7b, attention_qwen;
    std::int64_t flushed_bytes;  // overwritten before each call
};
const Shapes& full_shapes();
const Shapes& small_shapes();

// A device and the tensors of the case that is measured.
class Bench {
  public:
    Bench(kernels::Backend& device, const Shapes& sizes);

    Tensor uninitialised(DType dtype, std::initializer_list<std::int64_t> shape);
    // Normally distributed, fp32 or bf16.
    Tensor random(DType dtype, std::initializer_list<std::int64_t> shape);
    Tensor bf16(std::initializer_list<std::int64_t> shape) { return random(DType::kBF16, shape); }
    Tensor f32(std::initializer_list<std::int64_t> shape) { return random(DType::kF32, shape); }
    // Evenly drawn below `bound`.
    Tensor integers(std::initializer_list<std::int64_t> shape, std::int64_t bound);
    std::byte* bytes(std::int64_t count);
    void forget_tensors();

    // Seconds of a call by the device's clock, the median of up to fifteen after one that is not counted. What the
    // call reads is in no cache.
    double time(const std::function<void()>& call);

    kernels::Backend& backend;
    const Shapes& shapes;

  private:
    double time_once(const std::function<void()>& call);

    tensor::Memory flushed_;
    std::vector<tensor::Memory> memory_;
};

// One call of an operation and its work.
struct Case {
    double bytes = 0;       // the fewest that it can move: each input read once, each output written once
    double operations = 0;  // where these bound it; a multiply-add is 2
    std::function<void()> call;
};

// Made when its turn comes.
struct NamedCase {
    const char* name;
    Case (*make)(Bench&);
};
// A copy, and a large product in bf16: the limits of all others.
Case copy_case(Bench& bench);
Case large_product(Bench& bench);
// Those that matter most for a step's time stand first.
std::span<const NamedCase> kernel_cases();

}  // namespace atl::bench
