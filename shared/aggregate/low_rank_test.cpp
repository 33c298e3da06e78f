#include "shared/aggregate/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

namespace atl::aggregate {
namespace {

TallMatrix random_matrix(std::size_t rows, std::size_t columns, unsigned seed) {
    std::mt19937 dice(seed);
    TallMatrix matrix(rows, columns);
    for (float& value : matrix.values) value = static_cast<float>(static_cast<double>(dice()) / 0x1p31 - 1);
    for (double& factor : matrix.factors) factor = 0.5 + static_cast<double>(dice() % 8) / 8;
    return matrix;
}

Matrix widened(const TallMatrix& tall) {
    Matrix matrix(tall.rows, tall.columns);
    for (std::size_t j = 0; j < tall.columns; ++j)
        for (std::size_t i = 0; i < tall.rows; ++i)
            matrix.column(j)[i] = static_cast<double>(tall.column(j)[i]) * tall.factors[j];
    return matrix;
}

// left rightᵀ, made after all.
Matrix product(const Matrix& left, const Matrix& right) {
    Matrix made(left.rows, right.rows);
    for (std::size_t k = 0; k < left.columns; ++k)
        for (std::size_t j = 0; j < right.rows; ++j)
            for (std::size_t i = 0; i < left.rows; ++i) made.column(j)[i] += left.column(k)[i] * right.column(k)[j];
    return made;
}

Matrix product(const TallMatrix& left, const TallMatrix& right) {
    return product(widened(left), widened(right));
}

double squares(const Matrix& matrix) {
    double sum = 0;
    for (const double value : matrix.values) sum += value * value;
    return sum;
}

double squares_between(Matrix a, const Matrix& b) {
    for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] -= b.values[i];
    return squares(a);
}

struct Shape {
    std::size_t rows, columns, inner, rank;
};
const std::vector<Shape> kShapes = {{1, 1, 1, 1},     {1, 9, 4, 2},     {9, 1, 4, 2},    {5, 7, 3, 2},
                                    {30, 20, 8, 3},   {8, 50, 12, 4},   {50, 8, 12, 4},  {600, 40, 16, 4},
                                    {40, 1300, 6, 6}, {512, 512, 8, 2}, {513, 70, 9, 5}, {3, 3, 40, 2}};

struct Factors {
    TallMatrix left, right;
};

Factors random_factors(const Shape& shape, unsigned& seed) {
    TallMatrix left = random_matrix(shape.rows, shape.inner, ++seed);
    return {std::move(left), random_matrix(shape.columns, shape.inner, ++seed)};
}

TEST(LowRankTest, WhatItSaysIsLostIsWhatIsLost) {
    unsigned seed = 0;
    for (const Shape& shape : kShapes) {
        const auto [left, right] = random_factors(shape, seed);
        const Nearest nearest = find_nearest(left, right, shape.rank);
        const Matrix whole = product(left, right);
        EXPECT_NEAR(nearest.whole / squares(whole), 1, 1e-13) << shape.rows << " " << shape.columns;
        EXPECT_NEAR(squares_between(product(nearest.left, nearest.right), whole) / squares(whole),
                    nearest.left_out / nearest.whole, 1e-13)
            << shape.rows << " " << shape.columns;
    }
}

// The columns of both are orthogonal and of equal length, and no other matrix of that rank is nearer: what is left out
// is orthogonal to them, and smaller in every direction than the least of them.
TEST(LowRankTest, ItKeepsTheLargestSingularValues) {
    unsigned seed = 100;
    for (const Shape& shape : kShapes) {
        const auto [left, right] = random_factors(shape, seed);
        const Nearest nearest = find_nearest(left, right, shape.rank);
        Matrix rest = product(left, right);
        const Matrix kept = product(nearest.left, nearest.right);
        const double scale = std::sqrt(squares(rest));
        for (std::size_t i = 0; i < rest.values.size(); ++i) rest.values[i] -= kept.values[i];
        double least = 1e300;
        for (std::size_t i = 0; i < nearest.used; ++i)
            for (std::size_t j = 0; j < nearest.used; ++j) {
                double of_left = 0, of_right = 0;
                for (std::size_t k = 0; k < shape.rows; ++k)
                    of_left += nearest.left.column(i)[k] * nearest.left.column(j)[k];
                for (std::size_t k = 0; k < shape.columns; ++k)
                    of_right += nearest.right.column(i)[k] * nearest.right.column(j)[k];
                EXPECT_NEAR(of_left, of_right, 1e-12 * scale);
                if (i == j) least = std::min(least, of_left);
                EXPECT_NEAR(i == j ? 0 : of_left, 0, 1e-12 * scale);
            }
        // The largest singular value of the rest, by powers.
        std::vector<double> x(shape.columns, 1.0);
        double largest = 0;
        for (int step = 0; step < 200; ++step) {
            std::vector<double> y(shape.rows), z(shape.columns);
            for (std::size_t j = 0; j < shape.columns; ++j)
                for (std::size_t i = 0; i < shape.rows; ++i) y[i] += rest.column(j)[i] * x[j];
            for (std::size_t j = 0; j < shape.columns; ++j)
                for (std::size_t i = 0; i < shape.rows; ++i) z[j] += rest.column(j)[i] * y[i];
            double norm = 0;
            for (const double value : z) norm += value * value;
            norm = std::sqrt(norm);
            largest = std::sqrt(norm);
            if (norm < 1e-20) break;
            for (std::size_t j = 0; j < shape.columns; ++j) x[j] = z[j] / norm;
        }
        EXPECT_LE(largest, least * (1 + 1e-9) + 1e-9 * scale) << shape.rows << " " << shape.columns;
    }
}

TEST(LowRankTest, AMatrixOfLessRankIsWholeAndItsOtherColumnsAreZero) {
    TallMatrix left = random_matrix(700, 6, 1), right = random_matrix(90, 6, 2);
    for (const std::size_t copy : {3U, 4U, 5U})  // so that three of six remain
        std::ranges::copy(left.column(copy - 3), left.column(copy).begin());
    const Nearest nearest = find_nearest(left, right, 5);
    EXPECT_EQ(nearest.used, 3U);
    EXPECT_LT(nearest.left_out, 1e-28 * nearest.whole);
    EXPECT_LT(squares_between(product(nearest.left, nearest.right), product(left, right)), 1e-26 * nearest.whole);
    for (const std::size_t unused : {3U, 4U})
        for (const double value : nearest.left.column(unused)) EXPECT_EQ(value, 0);
    const Nearest nothing = find_nearest(TallMatrix(20, 4), random_matrix(10, 4, 3), 2);
    EXPECT_EQ(nothing.used, 0U);
    EXPECT_EQ(nothing.whole, 0);
    EXPECT_EQ(squares(nothing.left), 0);
}

TEST(LowRankTest, VeryLargeAndVerySmallNumbersAreKept) {
    for (const double scale : {1e-38, 1e38}) {
        TallMatrix left = random_matrix(30, 6, 5), right = random_matrix(20, 6, 6);
        for (TallMatrix* matrix : {&left, &right})
            for (float& value : matrix->values) value = static_cast<float>(static_cast<double>(value) * scale);
        const Nearest nearest = find_nearest(left, right, 6);
        EXPECT_EQ(nearest.used, 6U);
        EXPECT_LT(nearest.left_out, 1e-28 * nearest.whole);
        EXPECT_LT(squares_between(product(nearest.left, nearest.right), product(left, right)), 1e-26 * nearest.whole);
    }
}

TEST(LowRankTest, InnerProductsAreThoseOfTheProducts) {
    const TallMatrix left = random_matrix(1025, 7, 7), right = random_matrix(18, 7, 8);
    EXPECT_NEAR(sum_of_squares(left, {0, 7}), squares(widened(left)), 1e-9);
    const std::vector<Columns> groups = {{0, 3}, {3, 1}, {4, 3}};
    std::vector<Matrix> products;
    for (const Columns& group : groups) {
        Matrix a(left.rows, group.count), b(right.rows, group.count);
        for (std::size_t j = 0; j < group.count; ++j) {
            std::ranges::copy(widened(left).column(group.first + j), a.column(j).begin());
            std::ranges::copy(widened(right).column(group.first + j), b.column(j).begin());
        }
        products.push_back(product(a, b));
    }
    const std::vector<double> inner = inner_products(left, right, groups);
    for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < 3; ++j) {
            double sum = 0;
            for (std::size_t k = 0; k < products[i].values.size(); ++k)
                sum += products[i].values[k] * products[j].values[k];
            EXPECT_NEAR(inner[i * 3 + j], sum, 1e-12 * std::sqrt(squares(products[i]) * squares(products[j])));
        }
}

}  // namespace
}  // namespace atl::aggregate
