#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "trainer/kernels/testing/on_device.h"

namespace atl::kernels {

// How AttentionReference computes: exactly, unless said otherwise.
struct AttentionArithmetic {
    // Rounds what a kernel for tensor cores keeps in a format (FlashAttention-2: Dao, arXiv:2307.08691): probabilities
    // and gradients of scores before they are multiplied, out, and the gradients. What the gradients of a query's
    // scores have in common is then taken from the rounded out.
    double (*round)(double) = [](double value) { return value; };
    double (*round_factor)(double) = round;  // of the probabilities and gradients of scores, where it is another
    double scale = 1;                        // of the scores, beside 1/sqrt(D)
};

// out, log-sum-exp and the gradients of qkv for a given out gradient in fp64, straight from the definition.
struct AttentionReference {
    std::vector<double> out, log_sum_exp, qkv_gradient;

    AttentionReference(const AttentionShape& shape, const OnDevice<>& qkv, const std::vector<std::int32_t>& starts,
                       const OnDevice<>& dout, const AttentionArithmetic& arithmetic = {})
        : out(static_cast<std::size_t>(shape.batch * shape.length * shape.heads * shape.head_channels)),
          log_sum_exp(static_cast<std::size_t>(shape.batch * shape.heads * shape.length)),
          qkv_gradient(qkv.given.size()),
          s_(shape),
          with_(arithmetic),
          factor_(arithmetic.scale / std::sqrt(static_cast<double>(shape.head_channels))) {
        for (std::int64_t b = 0; b < s_.batch; ++b) {
            for (std::int64_t h = 0; h < s_.heads; ++h) {
                for (std::int64_t t = 0; t < s_.length; ++t) {
                    const Query query(s_, b, h, t, starts[static_cast<std::size_t>(b * s_.length + t)]);
                    forward(query, qkv);
                    backward(query, qkv, dout);
                }
            }
        }
        for (double& gradient : qkv_gradient) gradient = with_.round(gradient);
    }

  private:
    // Query t of a head, and where it and the keys and values that it sees begin in qkv.
    struct Query {
        Query(const AttentionShape& s, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t first)
            : first_key(b * s.length + first),
              keys(t - first + 1),
              at((b * s.length + t) * s.qkv_columns() + h * s.head_channels),
              out_at(((b * s.length + t) * s.heads + h) * s.head_channels),
              log_sum_at((b * s.heads + h) * s.length + t),
              key_column((s.heads + h / (s.heads / s.kv_heads)) * s.head_channels),
              value_column(key_column + s.kv_heads * s.head_channels) {}
        std::int64_t first_key, keys, at, out_at, log_sum_at, key_column, value_column;
    };
    std::int64_t key_at(const Query& q, std::int64_t key) const {
        return (q.first_key + key) * s_.qkv_columns() + q.key_column;
    }
    std::int64_t value_at(const Query& q, std::int64_t key) const {
        return (q.first_key + key) * s_.qkv_columns() + q.value_column;
    }
    static double& at(std::vector<double>& values, std::int64_t index) {
        return values[static_cast<std::size_t>(index)];
    }
    double score(const Query& q, const OnDevice<>& qkv, std::int64_t key) const {
        double sum = 0;
        for (std::int64_t c = 0; c < s_.head_channels; ++c) sum += qkv[q.at + c] * qkv[key_at(q, key) + c];
        return sum * factor_;
    }

    void forward(const Query& q, const OnDevice<>& qkv) {
        std::vector<double> scores;
        for (std::int64_t key = 0; key < q.keys; ++key) scores.push_back(score(q, qkv, key));
        const double largest = *std::ranges::max_element(scores);
        double total = 0;
        for (std::int64_t key = 0; key < q.keys; ++key) {
            const double weight = std::exp(at(scores, key) - largest), rounded = with_.round_factor(weight);
            total += weight;
            for (std::int64_t c = 0; c < s_.head_channels; ++c)
                at(out, q.out_at + c) += rounded * qkv[value_at(q, key) + c];
        }
        for (std::int64_t c = 0; c < s_.head_channels; ++c)
            at(out, q.out_at + c) = with_.round(at(out, q.out_at + c) / total);
        at(log_sum_exp, q.log_sum_at) = largest + std::log(total);
    }

    void backward(const Query& q, const OnDevice<>& qkv, const OnDevice<>& dout) {
        double common = 0;
        for (std::int64_t c = 0; c < s_.head_channels; ++c) common += dout[q.out_at + c] * at(out, q.out_at + c);
        for (std::int64_t key = 0; key < q.keys; ++key) {
            const double p = std::exp(score(q, qkv, key) - at(log_sum_exp, q.log_sum_at)),
                         rounded = with_.round_factor(p);
            double dp = 0;
            for (std::int64_t c = 0; c < s_.head_channels; ++c) {
                dp += dout[q.out_at + c] * qkv[value_at(q, key) + c];
                at(qkv_gradient, value_at(q, key) + c) += rounded * dout[q.out_at + c];
            }
            const double ds = with_.round_factor(p * (dp - common)) * factor_;
            for (std::int64_t c = 0; c < s_.head_channels; ++c) {
                at(qkv_gradient, q.at + c) += ds * qkv[key_at(q, key) + c];
                at(qkv_gradient, key_at(q, key) + c) += ds * qkv[q.at + c];
            }
        }
    }

    AttentionShape s_;
    AttentionArithmetic with_;
    double factor_;
};

}  // namespace atl::kernels
