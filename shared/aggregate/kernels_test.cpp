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
        kernels.add_part(sum.data(), values.data(), expected.data(), 0.6F, values.size());
        baseline.add_part(expected.data(), values.data(), std::vector(expected).data(), 0.6F, values.size());
        EXPECT_EQ(std::memcmp(sum.data(), expected.data(), sum.size() * sizeof(float)), 0) << kernels.name;
        std::vector<double> changes(values.size()), expected_changes(values.size());
        kernels.add_change(changes.data(), values.data(), expected.data(), values.size());
        baseline.add_change(expected_changes.data(), values.data(), expected.data(), values.size());
        EXPECT_EQ(changes, expected_changes) << kernels.name;
        double sums[3], expected_sums[3];
        for (double& change : changes) change *= 1.7;
        kernels.measure(values.data(), expected.data(), changes.data(), values.size(), sums);
        baseline.measure(values.data(), expected.data(), changes.data(), values.size(), expected_sums);
        EXPECT_EQ(std::memcmp(sums, expected_sums, sizeof sums), 0) << kernels.name;
        std::vector<float> shortened = values, expected_shortened = values;
        kernels.shorten(shortened.data(), expected.data(), 0.37, values.size());
        baseline.shorten(expected_shortened.data(), expected.data(), 0.37, values.size());
        EXPECT_EQ(std::memcmp(shortened.data(), expected_shortened.data(), sum.size() * sizeof(float)), 0)
            << kernels.name;
        std::vector<double> moved = changes, expected_moved = changes;
        kernels.add_multiple(moved.data(), -0.3, expected_changes.data(), changes.size());
        baseline.add_multiple(expected_moved.data(), -0.3, expected_changes.data(), changes.size());
        EXPECT_EQ(moved, expected_moved) << kernels.name;
        const double product = kernels.dot(changes.data(), expected_changes.data(), changes.size());
        const double expected_product = baseline.dot(changes.data(), expected_changes.data(), changes.size());
        EXPECT_EQ(std::memcmp(&product, &expected_product, sizeof product), 0) << kernels.name;
        std::vector<float> momentum(values.rbegin(), values.rend());
        std::vector<float> expected_momentum = momentum;
        kernels.nesterov(sum.data(), momentum.data(), values.data(), 0.7F, 0.9F, values.size());
        baseline.nesterov(expected.data(), expected_momentum.data(), values.data(), 0.7F, 0.9F, values.size());
        EXPECT_EQ(std::memcmp(sum.data(), expected.data(), sum.size() * sizeof(float)), 0) << kernels.name;
        EXPECT_EQ(std::memcmp(momentum.data(), expected_momentum.data(), sum.size() * sizeof(float)), 0)
            << kernels.name;
        kernels.momentum(sum.data(), momentum.data(), values.data(), 0.7F, 0.9F, values.size());
        baseline.momentum(expected.data(), expected_momentum.data(), values.data(), 0.7F, 0.9F, values.size());
        std::vector<float> variance(values.size(), 0.1F), expected_variance = variance;
        const AdamNumbers numbers{0.01F, 0.9F, 0.1F, 0.99F, 0.01F, 0.001F};
        kernels.adam(sum.data(), momentum.data(), variance.data(), values.data(), numbers, values.size());
        baseline.adam(expected.data(), expected_momentum.data(), expected_variance.data(), values.data(), numbers,
                      values.size());
        for (const auto& [one, other] :
             {std::pair{&sum, &expected}, {&momentum, &expected_momentum}, {&variance, &expected_variance}})
            EXPECT_EQ(std::memcmp(one->data(), other->data(), one->size() * sizeof(float)), 0) << kernels.name;
    }
}

}  // namespace
}  // namespace atl::aggregate
