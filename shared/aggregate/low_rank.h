#pragma once

#include <cstddef>
#include <span>
#include <vector>

// Sums of products of thin matrices, in fp64 and without ever making a product. The bits depend on the numbers alone,
// not on the CPU. Internal to this module.
namespace atl::aggregate {

// Column after column.
struct Matrix {
    Matrix() = default;
    Matrix(std::size_t row_count, std::size_t column_count)
        : rows(row_count), columns(column_count), values(row_count * column_count) {}
    std::span<double> column(std::size_t at) { return std::span(values).subspan(at * rows, rows); }
    std::span<const double> column(std::size_t at) const { return std::span(values).subspan(at * rows, rows); }

    std::size_t rows = 0, columns = 0;
    std::vector<double> values;
};

// One with many rows, as fp32: half of what Matrix takes. Column j stands for factors[j] times its numbers, in fp64.
struct TallMatrix {
    TallMatrix() = default;
    TallMatrix(std::size_t row_count, std::size_t column_count)
        : rows(row_count), columns(column_count), values(row_count * column_count), factors(column_count, 1) {}
    std::span<float> column(std::size_t at) { return std::span(values).subspan(at * rows, rows); }
    std::span<const float> column(std::size_t at) const { return std::span(values).subspan(at * rows, rows); }

    std::size_t rows = 0, columns = 0;
    std::vector<float> values;
    std::vector<double> factors;
};

// left rightᵀ, the matrix of that rank which is nearest to another one.
struct Nearest {
    Matrix left, right;    // each with `rank` columns, of equal length in both
    std::size_t used = 0;  // columns that are not zero, which come first: fewer where the other one has less rank
    double left_out = 0;   // squares of what it lacks of the other one
    double whole = 0;      // and of all of that
};

// That of left rightᵀ, by the QR decompositions of both and the singular values of a matrix of their columns' number.
// Both have as many columns as each other. Finite numbers. Holds, beside both and what it returns, squares of their
// columns' number alone.
Nearest find_nearest(const TallMatrix& left, const TallMatrix& right, std::size_t rank);

// Neighbouring columns of `left` and `right`, whose product is left rightᵀ of these alone.
struct Columns {
    std::size_t first = 0, count = 0;
};

// The two matrices of a LoRA adapter in several models, side by side: model m's are the columns models[m] of both.
struct AdapterPair {
    TallMatrix b;                 // [out, all ranks]
    TallMatrix a;                 // [in, all ranks]: each A transposed
    std::vector<Columns> models;  // the updates, and behind them their base where it counts
    std::vector<double> amounts;  // of each model's B A in the next one's
    TallMatrix start_a;           // that of the next one's base alone, whose rank it gets
};

// ⟨product i, product j⟩ of each two of them, row after row.
std::vector<double> inner_products(const TallMatrix& left, const TallMatrix& right, std::span<const Columns> products);

// Of the numbers in these columns.
double sum_of_squares(const TallMatrix& matrix, const Columns& columns);

}  // namespace atl::aggregate
