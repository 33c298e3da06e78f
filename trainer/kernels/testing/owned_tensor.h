#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "trainer/kernels/backend.h"

// For tests of operations: owned tensors with fixed random values, fp64 copies and distances.
namespace atl::kernels {

// A tensor that owns its elements.
struct Owned {
    std::vector<float> values;
    Tensor tensor;

    explicit Owned(std::initializer_list<std::int64_t> shape, float fill = -77.0F) {
        std::int64_t count = 1;
        for (const std::int64_t dim : shape) count *= dim;
        values.assign(static_cast<std::size_t>(count), fill);
        tensor = Tensor(values.data(), tensor::DType::kF32, shape);
    }
    Owned(Owned&&) = default;
    Owned copy() const {
        Owned same({tensor.rows(), tensor.columns()});
        same.values = values;
        same.tensor = Tensor(same.values.data(), tensor::DType::kF32, {tensor.rows(), tensor.columns()});
        return same;
    }

    double operator[](std::int64_t index) const { return static_cast<double>(values[static_cast<std::size_t>(index)]); }
};

inline Owned random(std::initializer_list<std::int64_t> shape, unsigned seed, float deviation = 1.0F) {
    Owned owned(shape);
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0F, deviation);
    for (float& value : owned.values) value = normal(engine);
    return owned;
}

inline Tensor integers(std::vector<std::int32_t>& values) {
    return Tensor(values.data(), tensor::DType::kI32, {static_cast<std::int64_t>(values.size())});
}

inline Tensor one_number(double& number) {
    return {&number, tensor::DType::kF64, {1}};
}

// |got − expected| / |expected|.
inline double relative_l2(const Owned& got, const std::vector<double>& expected) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += std::pow(static_cast<double>(got.values[i]) - expected[i], 2);
        size += expected[i] * expected[i];
    }
    return std::sqrt(difference / size);
}

inline constexpr double kOpTolerance = 1e-6;

}  // namespace atl::kernels
