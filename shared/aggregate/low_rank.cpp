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

// A matrix's QR decomposition by Householder reflections (Golub and Van Loan, Matrix Computations, 5.2). R is in and
// above the diagonal; below it are the reflections' vectors, whose first element is 1 and stands nowhere.
struct Reflected {
    Matrix matrix;
    std::vector<double> factors;

    std::size_t count() const { return factors.size(); }
    std::span<const double> vector(std::size_t k) const { return matrix.column(k).subspan(k + 1); }
};

// Reflects what is below the k-th row of a column.
void reflect_column(const Reflected& by, std::size_t k, std::span<double> column) {
    const std::span<double> rest = column.subspan(k + 1);
    const double moved = by.factors[k] * (column[k] + dot(by.vector(k), rest));
    column[k] -= moved;
    add_multiple(rest, -moved, by.vector(k));
}

Reflected decompose(Matrix matrix) {
    const std::size_t count = std::min(matrix.rows, matrix.columns);
    Reflected made{std::move(matrix), std::vector<double>(count)};
    for (std::size_t k = 0; k < count; ++k) {
        double& head = made.matrix.column(k)[k];
        const std::span<double> rest = made.matrix.column(k).subspan(k + 1);
        const double below = dot(rest, rest);
        if (below == 0) continue;
        const double beta = -std::copysign(std::sqrt(head * head + below), head);
        made.factors[k] = (beta - head) / beta;
        for (double& value : rest) value /= head - beta;
        head = beta;
        for (std::size_t j = k + 1; j < made.matrix.columns; ++j) reflect_column(made, k, made.matrix.column(j));
    }
    return made;
}

// The QR decomposition of a matrix with many rows: a tile of them after the other is put below the R of those before.
class TallQr {
  public:
    explicit TallQr(const Matrix& matrix) : rows_(matrix.rows), r_(0, matrix.columns) {
        for (std::size_t begin = 0; begin < matrix.rows; begin += kTileRows) {
            const std::size_t count = std::min(kTileRows, matrix.rows - begin);
            Matrix stacked(r_.rows + count, matrix.columns);
            for (std::size_t j = 0; j < matrix.columns; ++j) {
                std::ranges::copy(r_.column(j), stacked.column(j).begin());
                std::ranges::copy(matrix.column(j).subspan(begin, count), stacked.column(j).subspan(r_.rows).begin());
            }
            tiles_.push_back(decompose(std::move(stacked)));
            r_ = r_of(tiles_.back());
        }
    }

    const Matrix& r() const { return r_; }

    // Q times a matrix with as many rows as R.
    Matrix times(Matrix top) const {
        Matrix product(rows_, top.columns);
        std::size_t end = rows_;
        for (std::size_t t = tiles_.size(); t-- > 0;) {
            const Reflected& tile = tiles_[t];
            const std::size_t before = t == 0 ? 0 : tiles_[t - 1].count();  // rows of the R that it begins with
            const std::size_t count = tile.matrix.rows - before;
            Matrix next(before, top.columns);
            std::vector<double> column(tile.matrix.rows);
            for (std::size_t j = 0; j < top.columns; ++j) {
                std::ranges::fill(std::ranges::copy(top.column(j), column.begin()).out, column.end(), 0.0);
                for (std::size_t k = tile.count(); k-- > 0;) reflect_column(tile, k, column);
                std::copy_n(column.begin(), before, next.column(j).begin());
                std::copy_n(column.begin() + static_cast<std::ptrdiff_t>(before), count,
                            product.column(j).subspan(end - count).begin());
            }
            end -= count;
            top = std::move(next);
        }
        return product;
    }

  private:
    static Matrix r_of(const Reflected& tile) {
        Matrix r(tile.count(), tile.matrix.columns);
        for (std::size_t j = 0; j < r.columns; ++j)
            std::copy_n(tile.matrix.column(j).begin(), std::min(j + 1, r.rows), r.column(j).begin());
        return r;
    }

    std::size_t rows_;
    std::vector<Reflected> tiles_;
    Matrix r_;
};

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

Nearest find_nearest(const Matrix& left, const Matrix& right, std::size_t rank) {
    check(left.columns == right.columns, "a sum of products of other numbers of columns");
    const TallQr of_left(left), of_right(right);
    Matrix core = times_transposed(of_left.r(), of_right.r()), vectors;
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
        add_multiple(of_core.column(at), 1 / root, core.column(j));
        add_multiple(of_vectors.column(at), root, vectors.column(j));
    }
    nearest.left = of_left.times(std::move(of_core));
    nearest.right = of_right.times(std::move(of_vectors));
    return nearest;
}

std::vector<double> inner_products(const Matrix& left, const Matrix& right, std::span<const Columns> products) {
    const std::size_t count = products.size();
    std::vector<double> sums(count * count);
    const auto inner = [&](const Columns& a, const Columns& b) {
        double sum = 0;
        for (std::size_t i = a.first; i < a.first + a.count; ++i)
            for (std::size_t j = b.first; j < b.first + b.count; ++j)
                sum += dot(left.column(i), left.column(j)) * dot(right.column(i), right.column(j));
        return sum;
    };
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = i; j < count; ++j)
            sums[i * count + j] = sums[j * count + i] = inner(products[i], products[j]);
    return sums;
}

}  // namespace atl::aggregate
