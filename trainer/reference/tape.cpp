#include "trainer/reference/tape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace atl::reference {
namespace {

double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

const double* row_of(const Matrix& matrix, std::int64_t row) {
    return matrix.values.data() + row * matrix.columns;
}

void add_scaled(const double* from, double factor, std::int64_t count, double* to) {
    for (std::int64_t j = 0; j < count; ++j) to[j] += factor * from[j];
}

// In eight sums, that the processor adds at once.
double dot(const double* a, const double* b, std::int64_t count) {
    std::array<double, 8> sums{};
    std::int64_t at = 0;
    for (; at + 8 <= count; at += 8) {
        for (std::size_t i = 0; i < 8; ++i) {
            const auto index = at + static_cast<std::int64_t>(i);
            sums[i] += a[index] * b[index];
        }
    }
    for (; at < count; ++at) sums[0] += a[at] * b[at];
    return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Adds a · b or aᵀ · b to `to`. Of loops whose order changes no sum, the outermost is over the rows of the largest
// matrix, so that it is read once.
void add_product(const Matrix& a, const Matrix& b, Matrix& to) {
    for (std::int64_t k = 0; k < a.columns; ++k) {
        for (std::int64_t i = 0; i < a.rows; ++i) add_scaled(row_of(b, k), a(i, k), b.columns, &to(i, 0));
    }
}

void add_product_of_transposed(const Matrix& a, const Matrix& b, Matrix& to) {
    for (std::int64_t i = 0; i < a.columns; ++i) {
        for (std::int64_t k = 0; k < a.rows; ++k) add_scaled(row_of(b, k), a(k, i), b.columns, &to(i, 0));
    }
}

// The two channels of pair i of the head that begins at `head`.
std::pair<std::int64_t, std::int64_t> pair_of(std::int64_t head, std::int64_t i, std::int64_t half, bool interleaved) {
    if (interleaved) return {head + 2 * i, head + 2 * i + 1};
    return {head + i, head + half + i};
}

// x turned by the angles, or back by them with direction −1.
Matrix turned(const Matrix& x, const std::vector<std::vector<double>>& angles, bool interleaved, double direction) {
    Matrix out(x.rows, x.columns);
    const auto half = static_cast<std::int64_t>(angles.front().size());
    for (std::int64_t row = 0; row < x.rows; ++row) {
        for (std::int64_t head = 0; head < x.columns; head += 2 * half) {
            for (std::int64_t i = 0; i < half; ++i) {
                const double angle = angles[static_cast<std::size_t>(row)][static_cast<std::size_t>(i)];
                const double c = std::cos(angle), s = direction * std::sin(angle);
                const auto [a, b] = pair_of(head, i, half, interleaved);
                out(row, a) = x(row, a) * c - x(row, b) * s;
                out(row, b) = x(row, b) * c + x(row, a) * s;
            }
        }
    }
    return out;
}

double rounded(double value, int bits) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

}  // namespace

Tape::Node Tape::push(Matrix value, std::function<void(const Entry&)> back) {
    nodes_.push_back({std::move(value), nullptr, {}, std::move(back)});
    return nodes_.size() - 1;
}

Tape::Node Tape::leaf(Matrix value) {
    return push(std::move(value), [](const Entry&) {});
}

Tape::Node Tape::borrow(const Matrix& value) {
    const Node node = leaf({});
    nodes_[node].borrowed = &value;
    return node;
}

void Tape::backward(Node result, Matrix gradient) {
    for (Node node = 0; node < nodes_.size(); ++node) {
        nodes_[node].gradient = Matrix(value(node).rows, value(node).columns);
    }
    nodes_[result].gradient = std::move(gradient);
    for (Node node = result + 1; node-- > 0;) nodes_[node].back(nodes_[node]);
}

Tape::Node Tape::product(Node x, Node weight) {
    const Matrix &a = value(x), &w = value(weight);
    Matrix out(a.rows, w.rows);
    for (std::int64_t j = 0; j < w.rows; ++j) {
        for (std::int64_t i = 0; i < a.rows; ++i) out(i, j) = dot(row_of(a, i), row_of(w, j), a.columns);
    }
    return push(std::move(out), [this, x, weight](const Entry& self) {
        add_product(self.gradient, value(weight), grad(x));
        add_product_of_transposed(self.gradient, value(x), grad(weight));
    });
}

Tape::Node Tape::add(Node a, Node b) {
    Matrix out = value(a);
    for (std::size_t i = 0; i < out.values.size(); ++i) out.values[i] += value(b).values[i];
    return push(std::move(out), [this, a, b](const Entry& self) {
        for (std::size_t i = 0; i < self.gradient.values.size(); ++i) {
            grad(a).values[i] += self.gradient.values[i];
            grad(b).values[i] += self.gradient.values[i];
        }
    });
}

Tape::Node Tape::add_row(Node x, Node row) {
    Matrix out = value(x);
    for (std::int64_t i = 0; i < out.rows; ++i) {
        for (std::int64_t j = 0; j < out.columns; ++j) out(i, j) += value(row).values[static_cast<std::size_t>(j)];
    }
    return push(std::move(out), [this, x, row](const Entry& self) {
        const Matrix& g = self.gradient;
        for (std::int64_t i = 0; i < g.rows; ++i) {
            for (std::int64_t j = 0; j < g.columns; ++j) {
                grad(x)(i, j) += g(i, j);
                grad(row).values[static_cast<std::size_t>(j)] += g(i, j);
            }
        }
    });
}

Tape::Node Tape::scale(Node x, double factor) {
    Matrix out = value(x);
    for (double& element : out.values) element *= factor;
    return push(std::move(out), [this, x, factor](const Entry& self) {
        for (std::size_t i = 0; i < self.gradient.values.size(); ++i) {
            grad(x).values[i] += factor * self.gradient.values[i];
        }
    });
}

Tape::Node Tape::multiply(Node a, Node b) {
    Matrix out = value(a);
    for (std::size_t i = 0; i < out.values.size(); ++i) out.values[i] *= value(b).values[i];
    return push(std::move(out), [this, a, b](const Entry& self) {
        for (std::size_t i = 0; i < self.gradient.values.size(); ++i) {
            grad(a).values[i] += self.gradient.values[i] * value(b).values[i];
            grad(b).values[i] += self.gradient.values[i] * value(a).values[i];
        }
    });
}

Tape::Node Tape::map(Node x, double (*function)(double), double (*derivative)(double)) {
    Matrix out = value(x);
    for (double& element : out.values) element = function(element);
    return push(std::move(out), [this, x, derivative](const Entry& self) {
        for (std::size_t i = 0; i < self.gradient.values.size(); ++i) {
            grad(x).values[i] += self.gradient.values[i] * derivative(value(x).values[i]);
        }
    });
}

Tape::Node Tape::silu(Node x) {
    return map(
        x, [](double v) { return v * sigmoid(v); },
        [](double v) { return sigmoid(v) * (1.0 + v * (1.0 - sigmoid(v))); });
}

Tape::Node Tape::round(Node x, int bits) {
    Matrix out = value(x);
    for (double& element : out.values) element = rounded(element, bits);
    return push(std::move(out), [this, x](const Entry& self) {
        for (std::size_t i = 0; i < self.gradient.values.size(); ++i) grad(x).values[i] += self.gradient.values[i];
    });
}

Tape::Node Tape::gate(Node x, Matrix open) {
    for (double& element : open.values) element = element > 0 ? 1 : 0;
    return multiply(x, leaf(std::move(open)));
}

Tape::Node Tape::reshape(Node x, std::int64_t rows, std::int64_t columns) {
    Matrix out(rows, columns);
    out.values = value(x).values;
    return push(std::move(out), [this, x](const Entry& self) {
        for (std::size_t i = 0; i < self.gradient.values.size(); ++i) grad(x).values[i] += self.gradient.values[i];
    });
}

Tape::Node Tape::rows_of(Node table, std::vector<std::int64_t> rows) {
    Matrix out(static_cast<std::int64_t>(rows.size()), value(table).columns);
    for (std::int64_t i = 0; i < out.rows; ++i) {
        for (std::int64_t j = 0; j < out.columns; ++j) out(i, j) = value(table)(rows[static_cast<std::size_t>(i)], j);
    }
    return push(std::move(out), [this, table, rows = std::move(rows)](const Entry& self) {
        const Matrix& g = self.gradient;
        for (std::int64_t i = 0; i < g.rows; ++i) {
            for (std::int64_t j = 0; j < g.columns; ++j) grad(table)(rows[static_cast<std::size_t>(i)], j) += g(i, j);
        }
    });
}

// y = w x r with r = (mean x² + ε)^−½, so dL/dx = r (w g − x r² mean(w g x)).
Tape::Node Tape::rms_norm(Node x, Node weight, double epsilon, bool broken) {
    const Matrix& in = value(x);
    Matrix out(in.rows, in.columns);
    const double channels = static_cast<double>(in.columns);
    std::vector<double> roots;
    for (std::int64_t i = 0; i < in.rows; ++i) {
        double squares = 0;
        for (std::int64_t j = 0; j < in.columns; ++j) squares += in(i, j) * in(i, j);
        roots.push_back(1.0 / std::sqrt(squares / channels + epsilon));
        for (std::int64_t j = 0; j < in.columns; ++j) {
            out(i, j) = value(weight).values[static_cast<std::size_t>(j)] * in(i, j) * roots.back();
        }
    }
    return push(std::move(out), [this, x, weight, broken, roots = std::move(roots)](const Entry& self) {
        const Matrix &g = self.gradient, &from = value(x);
        for (std::int64_t i = 0; i < g.rows; ++i) {
            const double r = roots[static_cast<std::size_t>(i)];
            double mean = 0;
            for (std::int64_t j = 0; j < g.columns; ++j) {
                const auto column = static_cast<std::size_t>(j);
                mean += value(weight).values[column] * g(i, j) * from(i, j) / static_cast<double>(g.columns);
                grad(weight).values[column] += g(i, j) * from(i, j) * r;
            }
            if (broken) mean = 0;
            for (std::int64_t j = 0; j < g.columns; ++j) {
                const double direct = value(weight).values[static_cast<std::size_t>(j)] * g(i, j);
                grad(x)(i, j) += r * (direct - from(i, j) * r * r * mean);
            }
        }
    });
}

// y = w n + b with n = (x − mean x) r, so dL/dx = r (w g − mean(w g) − n mean(w g n)).
Tape::Node Tape::layer_norm(Node x, Node weight, Node bias, double epsilon) {
    const Matrix& in = value(x);
    const double channels = static_cast<double>(in.columns);
    Matrix out(in.rows, in.columns), normal(in.rows, in.columns);
    std::vector<double> roots;
    for (std::int64_t i = 0; i < in.rows; ++i) {
        double mean = 0, variance = 0;
        for (std::int64_t j = 0; j < in.columns; ++j) mean += in(i, j) / channels;
        for (std::int64_t j = 0; j < in.columns; ++j) variance += (in(i, j) - mean) * (in(i, j) - mean) / channels;
        roots.push_back(1.0 / std::sqrt(variance + epsilon));
        for (std::int64_t j = 0; j < in.columns; ++j) {
            const auto column = static_cast<std::size_t>(j);
            normal(i, j) = (in(i, j) - mean) * roots.back();
            out(i, j) = value(weight).values[column] * normal(i, j) + value(bias).values[column];
        }
    }
    return push(std::move(out), [this, x, weight, bias, roots = std::move(roots),
                                 normal = std::move(normal)](const Entry& self) {
        const Matrix& g = self.gradient;
        const double count = static_cast<double>(g.columns);
        for (std::int64_t i = 0; i < g.rows; ++i) {
            double mean = 0, along = 0;
            for (std::int64_t j = 0; j < g.columns; ++j) {
                const auto column = static_cast<std::size_t>(j);
                const double direct = value(weight).values[column] * g(i, j);
                mean += direct / count;
                along += direct * normal(i, j) / count;
                grad(weight).values[column] += g(i, j) * normal(i, j);
                grad(bias).values[column] += g(i, j);
            }
            for (std::int64_t j = 0; j < g.columns; ++j) {
                const double direct = value(weight).values[static_cast<std::size_t>(j)] * g(i, j);
                grad(x)(i, j) += roots[static_cast<std::size_t>(i)] * (direct - mean - normal(i, j) * along);
            }
        }
    });
}

Tape::Node Tape::rotate(Node x, std::vector<std::vector<double>> angles, bool interleaved) {
    Matrix out = turned(value(x), angles, interleaved, 1);
    return push(std::move(out), [this, x, interleaved, angles = std::move(angles)](const Entry& self) {
        const Matrix back = turned(self.gradient, angles, interleaved, -1);
        for (std::size_t i = 0; i < back.values.size(); ++i) grad(x).values[i] += back.values[i];
    });
}

// Row by row and head by head: p = softmax(factor · q kᵀ), out = p v.
Tape::Node Tape::attention(Node query, Node key, Node values, AttentionOf shape) {
    const Matrix &q = value(query), &k = value(key), &v = value(values);
    const std::int64_t heads = q.columns / shape.channels, sharing = heads / (k.columns / shape.channels);
    Matrix out(q.rows, q.columns);
    // Of each row and head, the probabilities of the keys it sees.
    std::vector<std::vector<double>> probabilities;
    const auto sees = [length = shape.length, starts = shape.starts](std::int64_t row) {
        return std::pair(row / length * length + starts[static_cast<std::size_t>(row)], row + 1);
    };
    for (std::int64_t row = 0; row < q.rows; ++row) {
        const auto [first, end] = sees(row);
        for (std::int64_t head = 0; head < heads; ++head) {
            const std::int64_t at = head * shape.channels, shared = head / sharing * shape.channels;
            std::vector<double> scores;
            for (std::int64_t other = first; other < end; ++other) {
                scores.push_back(0);
                for (std::int64_t c = 0; c < shape.channels; ++c) {
                    scores.back() += shape.factor * q(row, at + c) * k(other, shared + c);
                }
            }
            const double highest = *std::ranges::max_element(scores);
            double sum = 0;
            for (double& score : scores) sum += score = std::exp(score - highest);
            for (std::int64_t other = first; other < end; ++other) {
                double& p = scores[static_cast<std::size_t>(other - first)];
                p /= sum;
                if (shape.probability_bits > 0) p = rounded(p, shape.probability_bits);
                for (std::int64_t c = 0; c < shape.channels; ++c) out(row, at + c) += p * v(other, shared + c);
            }
            probabilities.push_back(std::move(scores));
        }
    }
    return push(std::move(out), [this, query, key, values, heads, sharing, sees, channels = shape.channels,
                                 factor = shape.factor, probabilities = std::move(probabilities)](const Entry& self) {
        const Matrix &g = self.gradient, &q1 = value(query), &k1 = value(key), &v1 = value(values);
        for (std::int64_t row = 0; row < g.rows; ++row) {
            const auto [first, end] = sees(row);
            for (std::int64_t head = 0; head < heads; ++head) {
                const auto& p = probabilities[static_cast<std::size_t>(row * heads + head)];
                const std::int64_t at = head * channels, shared = head / sharing * channels;
                std::vector<double> slopes(p.size());  // of the loss by p
                double mean = 0;
                for (std::int64_t other = first; other < end; ++other) {
                    const auto index = static_cast<std::size_t>(other - first);
                    for (std::int64_t c = 0; c < channels; ++c) {
                        slopes[index] += g(row, at + c) * v1(other, shared + c);
                        grad(values)(other, shared + c) += p[index] * g(row, at + c);
                    }
                    mean += p[index] * slopes[index];
                }
                for (std::int64_t other = first; other < end; ++other) {
                    const auto index = static_cast<std::size_t>(other - first);
                    const double slope = factor * p[index] * (slopes[index] - mean);
                    for (std::int64_t c = 0; c < channels; ++c) {
                        grad(query)(row, at + c) += slope * k1(other, shared + c);
                        grad(key)(other, shared + c) += slope * q1(row, at + c);
                    }
                }
            }
        }
    });
}

Tape::Node Tape::mean_loss(Node logits, std::vector<std::int64_t> targets) {
    const Matrix& x = value(logits);
    Matrix probabilities(x.rows, x.columns), out(1, 1);
    const auto counted = static_cast<double>(std::ranges::count_if(targets, [](std::int64_t t) { return t >= 0; }));
    for (std::int64_t row = 0; row < x.rows; ++row) {
        double highest = x(row, 0), sum = 0;
        for (std::int64_t j = 0; j < x.columns; ++j) highest = std::max(highest, x(row, j));
        for (std::int64_t j = 0; j < x.columns; ++j) sum += probabilities(row, j) = std::exp(x(row, j) - highest);
        for (std::int64_t j = 0; j < x.columns; ++j) probabilities(row, j) /= sum;
        const std::int64_t target = targets[static_cast<std::size_t>(row)];
        if (target >= 0) out(0, 0) += (highest + std::log(sum) - x(row, target)) / counted;
    }
    return push(std::move(out), [this, logits, counted, targets = std::move(targets),
                                 probabilities = std::move(probabilities)](const Entry& self) {
        const double slope = self.gradient(0, 0) / counted;
        for (std::int64_t row = 0; row < probabilities.rows; ++row) {
            const std::int64_t target = targets[static_cast<std::size_t>(row)];
            if (target < 0) continue;
            for (std::int64_t j = 0; j < probabilities.columns; ++j) {
                grad(logits)(row, j) += slope * (probabilities(row, j) - (j == target ? 1.0 : 0.0));
            }
        }
    });
}

}  // namespace atl::reference
