#include "shared/aggregate/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace atl::aggregate {
namespace {

std::vector<float> random_floats(std::size_t count) {
    std::mt19937 random(20240607);
    std::vector<float> values(count);
    for (float& value : values) {
        do value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        while (!std::isfinite(value));
    }
    return values;
}

TEST(AverageKernelsTest, AllSetsGiveTheSameBits) {
    const Kernels& baseline = runnable_kernels().front();
    std::vector<float> values = random_floats(100003);  // odd: the loops' tails count too
    for (std::size_t i = 0; i < values.size(); i += 2) values[i] = std::ldexp(values[i], -std::ilogb(values[i]) % 20);
    for (const Kernels& kernels : runnable_kernels()) {
        std::vector<float> sum(values.size());
        std::vector<float> expected(values.size());
        kernels.scale(sum.data(), values.data(), 0.3F, values.size());
        baseline.scale(expected.data(), values.data(), 0.3F, values.size());
        kernels.add(sum.data(), values.data(), 0.7F, values.size());
        baseline.add(expected.data(), values.data(), 0.7F, values.size());
        EXPECT_EQ(std::memcmp(sum.data(), expected.data(), sum.size() * sizeof(float)), 0) << kernels.name;
        std::vector<float> momentum(values.rbegin(), values.rend());
        std::vector<float> expected_momentum = momentum;
        kernels.nesterov(sum.data(), momentum.data(), values.data(), 0.7F, 0.9F, values.size());
        baseline.nesterov(expected.data(), expected_momentum.data(), values.data(), 0.7F, 0.9F, values.size());
        EXPECT_EQ(std::memcmp(sum.data(), expected.data(), sum.size() * sizeof(float)), 0) << kernels.name;
        EXPECT_EQ(std::memcmp(momentum.data(), expected_momentum.data(), sum.size() * sizeof(float)), 0)
            << kernels.name;
    }
}

}  // namespace
}  // namespace atl::aggregate
