#include "shared/aggregate/kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "shared/numeric/testing/random_floats.h"

namespace atl::aggregate {
namespace {

TEST(AverageKernelsTest, AllSetsGiveTheSameBits) {
    const Kernels& baseline = runnable_kernels().front();
    const std::vector<float> values = numeric::random_floats(100003);  // odd: the loops' tails count too
    for (const Kernels& kernels : runnable_kernels()) {
        std::vector<float> sum(values.size());
        std::vector<float> expected(values.size());
        kernels.scale(sum.data(), values.data(), 0.3F, values.size());
        baseline.scale(expected.data(), values.data(), 0.3F, values.size());
        kernels.add(sum.data(), values.data(), 0.7F, values.size());
        baseline.add(expected.data(), values.data(), 0.7F, values.size());
        EXPECT_EQ(std::memcmp(sum.data(), expected.data(), sum.size() * sizeof(float)), 0) << kernels.name;
        EXPECT_EQ(kernels.squared_distance(values.data(), expected.data(), values.size()),
                  baseline.squared_distance(values.data(), expected.data(), values.size()))
            << kernels.name;
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
