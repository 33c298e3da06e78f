#include "shared/aggregate/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace atl::aggregate {
namespace {

double sum_of(const std::vector<double>& values) {
    ExactSum sum;
    for (const double value : values) sum.add(value);
    return sum.value();
}

TEST(ExactSumTest, NothingIsLostBesideLargeNumbers) {
    EXPECT_EQ(sum_of({1e100, 1, -1e100}), 1);
    EXPECT_EQ(sum_of({1, 1e100, 1, -1e100}), 2);
    EXPECT_EQ(sum_of({}), 0);
    EXPECT_EQ(sum_of({5, -5}), 0);
    EXPECT_EQ(sum_of({1, 0x1p-53, 0x1p-80}), 1 + 0x1p-52) << "above half an ulp";
    EXPECT_EQ(sum_of({1, 0x1p-53, -0x1p-80}), 1) << "below it";
    EXPECT_EQ(sum_of({1, 0x1p-53}), 1) << "half of one goes to even";
}

TEST(ExactSumTest, OrderAndPartsChangeNoBit) {
    std::mt19937_64 random(7);
    std::vector<double> values;
    for (int i = 0; i < 3000; ++i)
        values.push_back(std::ldexp(static_cast<double>(random() >> 11) - 0x1p52, static_cast<int>(random() % 200)));
    const double expected = sum_of(values);
    for (int times = 0; times < 20; ++times) {
        std::shuffle(values.begin(), values.end(), random);
        ExactSum parts[3];
        for (std::size_t i = 0; i < values.size(); ++i) parts[random() % 3].add(values[i]);
        ExactSum whole;
        for (const ExactSum& part : parts) whole.add(part);
        EXPECT_EQ(whole.value(), expected);
    }
}

}  // namespace
}  // namespace atl::aggregate
