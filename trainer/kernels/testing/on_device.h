#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "trainer/kernels/backend.h"
#include "trainer/kernels/step_scalars.h"

// For tests of operations: values in a device's memory, and their distances to fp64.
namespace atl::kernels {

// Values that a test gives to a device and reads from it, by copies alone: operations get no memory of the host. The
// backend must outlive it.
//
//   const OnDevice<> x = random(backend, {3, 8}, 1);
//   backend.scale(x.tensor, 2);
//   x.given[5], x[5];  // what was given; in fp64
//   x.read()[5];       // what the device has: twice that
template <class Element = float>
class OnDevice {
  public:
    OnDevice(Backend& backend, tensor::DType dtype, std::initializer_list<std::int64_t> shape,
             std::vector<Element> elements)
        : given(std::move(elements)), backend_(&backend), memory_(backend.allocate(size_bytes()).value()) {
        tensor = Tensor(memory_.data(), dtype, shape);
        check(tensor.byte_count() == size_bytes(), "a tensor has as many elements as its shape says");
        write(given);
    }
    // fp32, filled with what no result is.
    OnDevice(Backend& backend, std::initializer_list<std::int64_t> shape, float fill = -77.0F)
        : OnDevice(backend, tensor::DType::kF32, shape, std::vector<float>(count_of(shape), fill)) {}

    // Other elements, as many.
    void write(std::vector<Element> elements) {
        check(elements.size() == given.size(), "a tensor keeps its size");
        given = std::move(elements);
        backend_->copy_from_host(given.data(), bytes());
    }
    std::vector<Element> read() const {
        std::vector<Element> elements(given.size());
        backend_->copy_to_host(bytes(), elements.data());
        return elements;
    }
    double operator[](std::int64_t index) const { return static_cast<double>(given[static_cast<std::size_t>(index)]); }

    std::vector<Element> given;
    Tensor tensor;

  private:
    static std::size_t count_of(std::initializer_list<std::int64_t> shape) {
        std::int64_t count = 1;
        for (const std::int64_t dim : shape) count *= dim;
        return static_cast<std::size_t>(count);
    }
    std::int64_t size_bytes() const { return static_cast<std::int64_t>(given.size() * sizeof(Element)); }
    Tensor bytes() const { return {memory_.data(), tensor::DType::kU8, {size_bytes()}}; }

    Backend* backend_;
    tensor::Memory memory_;
};

inline OnDevice<> random(Backend& backend, std::initializer_list<std::int64_t> shape, unsigned seed,
                         float deviation = 1.0F) {
    OnDevice<> x(backend, shape);
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0F, deviation);
    std::vector<float> values(x.given.size());
    for (float& value : values) value = normal(engine);
    x.write(std::move(values));
    return x;
}

inline OnDevice<std::int32_t> integers(Backend& backend, std::vector<std::int32_t> values) {
    const auto count = static_cast<std::int64_t>(values.size());
    return {backend, tensor::DType::kI32, {count}, std::move(values)};
}

// Of fp16 or bf16.
inline OnDevice<std::uint16_t> halves(Backend& backend, tensor::DType dtype, std::initializer_list<std::int64_t> shape,
                                      std::vector<std::uint16_t> bits) {
    return {backend, dtype, shape, std::move(bits)};
}

// For what attention keeps for its backward pass.
inline OnDevice<std::byte> attention_kept(Backend& backend, const AttentionShape& shape) {
    const std::int64_t bytes = backend.attention_kept_bytes(shape);
    return {backend, tensor::DType::kU8, {bytes}, std::vector<std::byte>(static_cast<std::size_t>(bytes))};
}

inline OnDevice<double> one_number(Backend& backend, double number) {
    return {backend, tensor::DType::kF64, {1}, {number}};
}

inline OnDevice<StepScalars> scalars(Backend& backend, const StepScalars& values) {
    return {backend, tensor::DType::kF64, {kStepScalars}, {values}};
}

// |got − expected| / |expected|.
inline double relative_l2(const std::vector<float>& got, const std::vector<double>& expected) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += std::pow(static_cast<double>(got[i]) - expected[i], 2);
        size += expected[i] * expected[i];
    }
    return std::sqrt(difference / size);
}
inline double relative_l2(const OnDevice<>& got, const std::vector<double>& expected) {
    return relative_l2(got.read(), expected);
}

inline constexpr double kOpTolerance = 1e-6;

}  // namespace atl::kernels
