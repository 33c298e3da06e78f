#include "shared/aggregate/low_rank.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shared/aggregate/kernels.h"
#include "shared/base/check.h"

namespace atl::aggregate {
namespace {

constexpr std::size_t kTileRows = 512;  // with their columns they stay in a core's cache
constexpr double kEpsilon = 0x1p-52;

double dot(std::span<const double> a, std::span<const double> b) {
    return best_kernels().dot(a.data(), b.data(), a.size());
}

// y += factor x
void add_multiple(std::span<double> y, double factor, std::span<const double> x) {
    best_kernels().add_multiple(y.data(), factor, x.data(), y.size());
}

// The R of a matrix's QR decomposition by Householder reflections (Golub and Van Loan, Matrix Computations, 5.2).
Matrix decompose(Matrix matrix) {
    const std::size_t count = std::min(matrix.rows, matrix.columns);
    for (std::size_t k = 0; k < count; ++k) {
        double& head = matrix.column(k)[k];
        const std::span<double> vector = matrix.column(k).subspan(k + 1);  // behind its first element, which is 1
        const double below = dot(vector, vector);
        if (below == 0) continue;
        const double beta = -std::copysign(std::sqrt(head * head + below), head);
        const double factor = (beta - head) / beta;
        for (double& value : vector) value /= head - beta;
        head = beta;
        for (std::size_t j = k + 1; j < matrix.columns; ++j) {
            const std::span<double> column = matrix.column(j).subspan(k);
            const double moved = factor * (column[0] + dot(vector, column.subspan(1)));
            column[0] -= moved;
            add_multiple(column.subspan(1), -moved, vector);
        }
    }
    Matrix r(count, matrix.columns);
    for (std::size_t j = 0; j < r.columns; ++j)
        std::copy_n(matrix.column(j).begin(), std::min(j + 1, r.rows), r.column(j).begin());
    return r;
}

void widen_column(const TallMatrix& from, std::size_t column, std::size_t begin, std::span<double> into) {
    const std::span<const float> values = from.column(column).subspan(begin, into.size());
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = static_cast<double>(values[i]) * from.factors[column];
}

// Hands the matrix to visit(begin, count) a tile of rows after the other.
template <class Visit>
void for_each_tile(const TallMatrix& matrix, const Visit& visit) {
    for (std::size_t begin = 0; begin < matrix.rows; begin += kTileRows)
        visit(begin, std::min(kTileRows, matrix.rows - begin));
}

// That of a matrix with many rows: a tile of them after the other is put below the R of those before, and nothing else
// is kept (TSQR: Demmel, Grigori, Hoemmen and Langou 2012, "Communication-optimal parallel and sequential QR").
Matrix find_r(const TallMatrix& matrix) {
    Matrix r(0, matrix.columns);
    for_each_tile(matrix, [&](std::size_t begin, std::size_t count) {
        Matrix stacked(r.rows + count, matrix.columns);
        for (std::size_t j = 0; j < matrix.columns; ++j) {
            std::ranges::copy(r.column(j), stacked.column(j).begin());
            widen_column(matrix, j, begin, stacked.column(j).subspan(r.rows));
        }
        r = decompose(std::move(stacked));
    });
    return r;
}

Matrix times(const TallMatrix& tall, const Matrix& by) {
    Matrix product(tall.rows, by.columns);
    std::vector<double> wide(kTileRows);
    for_each_tile(tall, [&](std::size_t begin, std::size_t count) {
        const std::span<double> part = std::span(wide).first(count);
        for (std::size_t k = 0; k < tall.columns; ++k) {
            widen_column(tall, k, begin, part);
            for (std::size_t j = 0; j < by.columns; ++j)
                add_multiple(product.column(j).subspan(begin, count), by.column(j)[k], part);
        }
    });
    return product;
}

// Of each two columns, in and above the diagonal.
Matrix dots_of(const TallMatrix& matrix) {
    Matrix dots(matrix.columns, matrix.columns);
    for_each_tile(matrix, [&](std::size_t begin, std::size_t count) {
        Matrix tile(count, matrix.columns);
        for (std::size_t j = 0; j < matrix.columns; ++j) widen_column(matrix, j, begin, tile.column(j));
        for (std::size_t j = 0; j < matrix.columns; ++j)
            for (std::size_t i = 0; i <= j; ++i) dots.column(j)[i] += dot(tile.column(i), tile.column(j));
    });
    return dots;
}

// aᵀ b
Matrix transposed_times(const Matrix& a, const Matrix& b) {
    Matrix product(a.columns, b.columns);
    for (std::size_t j = 0; j < b.columns; ++j)
        for (std::size_t i = 0; i < a.columns; ++i) product.column(j)[i] = dot(a.column(i), b.column(j));
    return product;
}

// a bᵀ
Matrix times_transposed(const Matrix& a, const Matrix& b) {
    Matrix product(a.rows, b.rows);
    for (std::size_t k = 0; k < a.columns; ++k)
        for (std::size_t j = 0; j < b.rows; ++j)
            if (b.column(k)[j] != 0) add_multiple(product.column(j), b.column(k)[j], a.column(k));
    return product;
}

void rotate(std::span<double> a, std::span<double> b, double cosine, double sine) {
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double x = a[i], y = b[i];
        a[i] = cosine * x - sine * y;
        b[i] = sine * x + cosine * y;
    }
}

// Makes a matrix's columns orthogonal by rotations of two of them (one-sided Jacobi, Golub and Van Loan 8.6.3): then
// they are its left singular vectors times the singular values, and the columns of `right` the right ones.
void make_orthogonal(Matrix& matrix, Matrix& right) {
    constexpr int kSweepsMax = 60;  // some ten are enough
    right = Matrix(matrix.columns, matrix.columns);
    for (std::size_t j = 0; j < right.columns; ++j) right.column(j)[j] = 1;
    std::vector<double> squares(matrix.columns);
    const double least = kEpsilon * kEpsilon * dot(matrix.values, matrix.values);  // below it there is only rounding
    bool moved = true;
    for (int sweep = 0; moved && sweep < kSweepsMax; ++sweep) {
        moved = false;
        for (std::size_t j = 0; j < matrix.columns; ++j) squares[j] = dot(matrix.column(j), matrix.column(j));
        for (std::size_t i = 0; i < matrix.columns; ++i)
            for (std::size_t j = i + 1; j < matrix.columns; ++j) {
                if (squares[i] <= least || squares[j] <= least) continue;
                const double both = dot(matrix.column(i), matrix.column(j));
                if (!(std::fabs(both) > kEpsilon * std::sqrt(squares[i]) * std::sqrt(squares[j]))) continue;
                const double zeta = (squares[j] - squares[i]) / (2 * both);
                const double tangent = std::copysign(1 / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta)), zeta);
                const double cosine = 1 / std::sqrt(1 + tangent * tangent);
                rotate(matrix.column(i), matrix.column(j), cosine, cosine * tangent);
                rotate(right.column(i), right.column(j), cosine, cosine * tangent);
                squares[i] = std::max(squares[i] - tangent * both, 0.0);
                squares[j] += tangent * both;
                moved = true;
            }
    }
}

}  // namespace

// With left = Q R and right = P S it is Q (R Sᵀ) Pᵀ, and R Sᵀ = U D Vᵀ: so Q U √D = left Sᵀ V / √D, and P V √D = right
// Rᵀ U / √D. Neither Q nor P is made.
Nearest find_nearest(const TallMatrix& left, const TallMatrix& right, std::size_t rank) {
    check(left.columns == right.columns, "a sum of products of other numbers of columns");
    const Matrix of_left = find_r(left), of_right = find_r(right);
    Matrix core = times_transposed(of_left, of_right), vectors;
    make_orthogonal(core, vectors);
    std::vector<double> values(core.columns);
    for (std::size_t j = 0; j < values.size(); ++j) values[j] = std::sqrt(dot(core.column(j), core.column(j)));
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t j) { return values[j]; });

    Nearest nearest;
    Matrix of_core(core.rows, rank), of_vectors(core.columns, rank);
    // Below this there is only what rounding left.
    const double least = order.empty() ? 0 : values[order[0]] * kEpsilon * static_cast<double>(values.size());
    for (std::size_t at = order.size(); at-- > 0;) {  // small squares first
        const std::size_t j = order[at];
        nearest.whole += values[j] * values[j];
        if (at >= rank) nearest.left_out = nearest.whole;
        if (at >= rank || !(values[j] > least)) continue;
        nearest.used = std::max(nearest.used, at + 1);
        const double root = std::sqrt(values[j]);
        add_multiple(of_core.column(at), 1 / values[j] / root, core.column(j));
        add_multiple(of_vectors.column(at), 1 / root, vectors.column(j));
    }
    nearest.left = times(left, transposed_times(of_right, of_vectors));
    nearest.right = times(right, transposed_times(of_left, of_core));
    return nearest;
}

std::vector<double> inner_products(const TallMatrix& left, const TallMatrix& right, std::span<const Columns> products) {
    const Matrix of_left = dots_of(left), of_right = dots_of(right);
    const std::size_t count = products.size();
    std::vector<double> sums(count * count);
    const auto inner = [&](const Columns& a, const Columns& b) {
        double sum = 0;
        for (std::size_t i = a.first; i < a.first + a.count; ++i)
            for (std::size_t j = b.first; j < b.first + b.count; ++j) {
                const auto [low, high] = std::minmax(i, j);
                sum += of_left.column(high)[low] * of_right.column(high)[low];
            }
        return sum;
    };
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = i; j < count; ++j)
            sums[i * count + j] = sums[j * count + i] = inner(products[i], products[j]);
    return sums;
}

double sum_of_squares(const TallMatrix& matrix, const Columns& columns) {
    double sum = 0;
    std::vector<double> wide(kTileRows);
    for_each_tile(matrix, [&](std::size_t begin, std::size_t count) {
        const std::span<double> part = std::span(wide).first(count);
        for (std::size_t j = columns.first; j < columns.first + columns.count; ++j) {
            widen_column(matrix, j, begin, part);
            sum += dot(part, part);
        }
    });
    return sum;
}

}  // namespace atl::aggregate
