#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace atl::reference {

// A matrix in fp64, row-major.
struct Matrix {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::vector<double> values;

    Matrix() = default;
    Matrix(std::int64_t row_count, std::int64_t column_count)
        : rows(row_count), columns(column_count), values(static_cast<std::size_t>(row_count * column_count)) {}
    double& operator()(std::int64_t row, std::int64_t column) {
        return values[static_cast<std::size_t>(row * columns + column)];
    }
    double operator()(std::int64_t row, std::int64_t column) const {
        return values[static_cast<std::size_t>(row * columns + column)];
    }
};

// Operations of language models in fp64, written as they stand in textbooks, with their derivatives: what the trainer's
// fp32 kernels are compared with as a whole. Each call computes a value and notes how gradients flow back through it.
// It shares no code with the kernels.
class Tape {
  public:
    using Node = std::size_t;

    Node leaf(Matrix value);
    Node borrow(const Matrix& value);  // a leaf that is not copied; it must outlive the tape
    const Matrix& value(Node node) const {
        const Entry& entry = nodes_[node];
        return entry.borrowed != nullptr ? *entry.borrowed : entry.value;
    }
    // Of the node that backward() began at, by this one; zeros where it does not depend on it.
    const Matrix& gradient(Node node) const { return nodes_[node].gradient; }
    Matrix take_gradient(Node node) { return std::move(nodes_[node].gradient); }
    // Sets the gradients of all nodes: of the sum of the products of the result's elements and those of `gradient`.
    void backward(Node result, Matrix gradient);

    Node product(Node x, Node weight);  // x [N, in] · weightᵀ, weight [out, in]
    Node add(Node a, Node b);
    Node add_row(Node x, Node row);  // row [1, C] to each row of x
    Node scale(Node x, double factor);
    Node multiply(Node a, Node b);
    Node silu(Node x);
    Node round(Node x, int bits);    // to that many significant bits; gradients pass as they are
    Node gate(Node x, Matrix open);  // x where `open` is positive, else 0; relu is gate(x, x)
    Node reshape(Node x, std::int64_t rows, std::int64_t columns);  // the same elements in the same order
    Node rows_of(Node table, std::vector<std::int64_t> rows);
    // `broken` leaves a term out of the derivative: a control.
    Node rms_norm(Node x, Node weight, double epsilon, bool broken = false);
    Node layer_norm(Node x, Node weight, Node bias, double epsilon);
    // Turns channels (i, i + D/2) of every head by the angle [row][i]; `interleaved` turns (2i, 2i + 1): a control.
    Node rotate(Node x, std::vector<std::vector<double>> angles, bool interleaved);
    // Heads of `channels` of query, key and value; query row t of a sequence sees keys starts[t] … t of it. Query heads
    // share key heads in their order. Scores are scaled by `factor`.
    struct AttentionOf {
        std::int64_t length = 0;  // rows a sequence
        std::int64_t channels = 0;
        std::vector<std::int64_t> starts;  // by row, counted in its sequence
        double factor = 1;
        int probability_bits = 0;  // that probabilities are rounded to; 0: none are
    };
    Node attention(Node query, Node key, Node value, AttentionOf shape);
    // The mean over rows with a target ≥ 0 of −log softmax(row)[target]: [1, 1].
    Node mean_loss(Node logits, std::vector<std::int64_t> targets);

  private:
    struct Entry {
        Matrix value;
        const Matrix* borrowed;  // in the place of value, or null
        Matrix gradient;
        std::function<void(const Entry& self)> back;  // adds to the gradients of what it came from
    };
    Node push(Matrix value, std::function<void(const Entry&)> back);
    // Element by element: value and derivative of a function.
    Node map(Node x, double (*function)(double), double (*derivative)(double));
    Matrix& grad(Node node) { return nodes_[node].gradient; }

    std::vector<Entry> nodes_;
};

}  // namespace atl::reference
