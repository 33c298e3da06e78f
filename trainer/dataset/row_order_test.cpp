#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "trainer/dataset/dataset.h"

namespace atl::dataset {
namespace {

std::vector<std::int64_t> epoch_of(const RowOrder& order, std::int64_t epoch) {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < order.rows(); ++i) rows.push_back(order.row_at(epoch * order.rows() + i));
    return rows;
}

TEST(RowOrderTest, EveryEpochHoldsEveryRowOnceInAnotherOrder) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097}) {
        std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
        std::iota(all.begin(), all.end(), 0);
        const RowOrder order(rows, true, 42);
        auto first = epoch_of(order, 0);
        auto second = epoch_of(order, 1);
        if (rows >= 16) {
            EXPECT_NE(first, second) << rows;
            EXPECT_NE(first, all) << rows;
        }
        std::sort(first.begin(), first.end());
        std::sort(second.begin(), second.end());
        EXPECT_EQ(first, all) << rows;
        EXPECT_EQ(second, all) << rows;
    }
}

TEST(RowOrderTest, TheSeedDecidesTheOrder) {
    EXPECT_EQ(epoch_of(RowOrder(100, true, 1), 0), epoch_of(RowOrder(100, true, 1), 0));
    EXPECT_NE(epoch_of(RowOrder(100, true, 1), 0), epoch_of(RowOrder(100, true, 2), 0));
}

TEST(RowOrderTest, WithoutShuffleTheOrderIsThatOfTheFile) {
    const RowOrder order(3, false, 1);
    EXPECT_EQ(epoch_of(order, 0), (std::vector<std::int64_t>{0, 1, 2}));
    EXPECT_EQ(epoch_of(order, 7), (std::vector<std::int64_t>{0, 1, 2}));
}

// A fixed point of the order on disk: a resumed run and another build must see the same rows.
TEST(RowOrderTest, TheOrderIsTheSameInEveryBuild) {
    const auto rows = epoch_of(RowOrder(10, true, 7), 3);
    EXPECT_EQ(rows, (std::vector<std::int64_t>{7, 1, 5, 3, 9, 6, 8, 2, 0, 4}));
}

// Chi-squared with 63 degrees of freedom: 99.99 % of fair shuffles stay below 115.
TEST(RowOrderTest, RowsSpreadEvenlyOverPlaces) {
    constexpr int kRows = 64;
    constexpr int kEpochs = 6400;
    const RowOrder order(kRows, true, 5);
    std::vector<int> place_counts(kRows);
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
        const auto rows = epoch_of(order, epoch);
        ++place_counts[static_cast<std::size_t>(std::find(rows.begin(), rows.end(), 0) - rows.begin())];
    }
    double chi_squared = 0;
    for (const int count : place_counts) {
        const double expected = static_cast<double>(kEpochs) / kRows;
        chi_squared += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LT(chi_squared, 115.0);
}

}  // namespace
}  // namespace atl::dataset
