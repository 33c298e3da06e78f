#pragma once

#include <cmath>
#include <random>

#include "shared/aggregate/testing/memory_models.h"

// LoRA adapters of one matrix in memory, and what they add to a model.
namespace atl::aggregate {

inline constexpr const char* kA = "m.q_proj.lora_A.weight";
inline constexpr const char* kB = "m.q_proj.lora_B.weight";

// An adapter of one matrix, in fp32.
struct Adapter {
    std::size_t out, in, rank;
    std::vector<float> a, b;  // [rank, in], [out, rank]
    LoraScale scale = {};
};

inline Adapter random_adapter(std::size_t out, std::size_t in, std::size_t rank, unsigned seed) {
    std::mt19937 dice(seed);
    Adapter made{out, in, rank, std::vector<float>(rank * in), std::vector<float>(out * rank)};
    for (auto* values : {&made.a, &made.b})
        for (float& value : *values) value = static_cast<float>(static_cast<double>(dice()) / 0x1p31 - 1);
    return made;
}

inline TestTensor matrix(const std::string& name, std::size_t rows, std::size_t columns,
                         const std::vector<float>& values, DType dtype = DType::kF32) {
    TestTensor tensor = dtype == DType::kF16 ? f16(name, values) : f32(name, values);
    tensor.shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
    return tensor;
}

inline std::vector<TestTensor> tensors_of(const Adapter& adapter, DType dtype = DType::kF32) {
    return {matrix(kA, adapter.rank, adapter.in, adapter.a, dtype),
            matrix(kB, adapter.out, adapter.rank, adapter.b, dtype)};
}

inline Input adapter_input(const std::string& name, const Adapter& adapter, DType dtype = DType::kF32) {
    Input input = input_of(name, {tensors_of(adapter, dtype)});
    input.lora = adapter.scale;
    return input;
}

inline std::vector<Input> inputs_of(const std::vector<Adapter>& adapters) {
    std::vector<Input> inputs;
    for (std::size_t i = 0; i < adapters.size(); ++i)
        inputs.push_back(adapter_input("update " + std::to_string(i), adapters[i]));
    return inputs;
}

using Dense = std::vector<double>;

inline void add_product(Dense& sum, double factor, const Adapter& adapter) {
    for (std::size_t o = 0; o < adapter.out; ++o)
        for (std::size_t k = 0; k < adapter.rank; ++k)
            for (std::size_t c = 0; c < adapter.in; ++c)
                sum[o * adapter.in + c] += factor * adapter.scale.of_rank(adapter.rank) *
                                           static_cast<double>(adapter.b[o * adapter.rank + k]) *
                                           static_cast<double>(adapter.a[k * adapter.in + c]);
}

inline Dense product_of(const Adapter& adapter) {
    Dense sum(adapter.out * adapter.in);
    add_product(sum, 1, adapter);
    return sum;
}

inline double norm_between(const Dense& x, const Dense& y) {
    double squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
    return std::sqrt(squares);
}

inline double norm(const Dense& x) {
    return norm_between(x, Dense(x.size()));
}

// The adapter in an output that is in fp32.
inline Adapter adapter_in(const std::string& file, const Adapter& like) {
    Adapter made = like;
    const std::size_t bytes_a = made.a.size() * sizeof(float), bytes_b = made.b.size() * sizeof(float);
    std::memcpy(made.a.data(), file.data() + file.size() - bytes_b - bytes_a, bytes_a);
    std::memcpy(made.b.data(), file.data() + file.size() - bytes_b, bytes_b);
    return made;
}

}  // namespace atl::aggregate
