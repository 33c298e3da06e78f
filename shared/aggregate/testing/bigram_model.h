#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

// A small language model, a table of logits from a token to the next, and the exact gradients of bigrams, so that what
// is trained is the same on every machine.
namespace atl::aggregate {

constexpr std::size_t kTokens = 24;
constexpr std::size_t kWeights = kTokens * kTokens;
constexpr int kRounds = 10;
constexpr int kSteps = 30;

using Weights = std::vector<double>;

inline void to_probabilities(const double* logits, double* probabilities) {
    double sum = 0;
    for (std::size_t b = 0; b < kTokens; ++b) sum += probabilities[b] = std::exp(logits[b]);
    for (std::size_t b = 0; b < kTokens; ++b) probabilities[b] /= sum;
}

// Bigrams of a language, and of a site's share of it, which is not quite the whole.
inline Weights bigrams(unsigned language, unsigned site) {
    std::mt19937 of_language(language), of_site(1000 + site);
    Weights probabilities(kWeights);
    for (std::size_t a = 0; a < kTokens; ++a) {
        double logits[kTokens];
        for (double& logit : logits)
            logit = 3 * (static_cast<double>(of_language()) / 0x1p31 - 1) +
                    0.3 * (static_cast<double>(of_site()) / 0x1p31 - 1);
        to_probabilities(logits, &probabilities[a * kTokens]);
    }
    return probabilities;
}

inline double perplexity(const Weights& model, const Weights& truth) {
    double loss = 0;
    for (std::size_t a = 0; a < kTokens; ++a) {
        double said[kTokens];
        to_probabilities(&model[a * kTokens], said);
        for (std::size_t b = 0; b < kTokens; ++b) loss -= truth[a * kTokens + b] * std::log(said[b]) / kTokens;
    }
    return std::exp(loss);
}

// Of the first round's; a cosine.
inline double rate_factor(int round) {
    return 0.5 * (1 + std::cos(M_PI * (round - 1) / kRounds));
}

inline Weights gradient_of(const Weights& model, const Weights& truth) {
    Weights gradient(kWeights);
    for (std::size_t a = 0; a < kTokens; ++a) {
        double said[kTokens];
        to_probabilities(&model[a * kTokens], said);
        for (std::size_t b = 0; b < kTokens; ++b)
            gradient[a * kTokens + b] = (said[b] - truth[a * kTokens + b]) / kTokens;
    }
    return gradient;
}

class AdamW {
  public:
    explicit AdamW(std::size_t size) : m_(size), v_(size) {}

    void update(Weights& values, const Weights& gradient, double rate) {
        ++step_;
        const double m_scale = 1 - std::pow(0.9, step_), v_scale = 1 - std::pow(0.95, step_);
        for (std::size_t i = 0; i < values.size(); ++i) {
            m_[i] = 0.9 * m_[i] + 0.1 * gradient[i];
            v_[i] = 0.95 * v_[i] + 0.05 * gradient[i] * gradient[i];
            values[i] -= rate * (m_[i] / m_scale) / (std::sqrt(v_[i] / v_scale) + 1e-8);
        }
    }

  private:
    Weights m_, v_;
    int step_ = 0;
};

}  // namespace atl::aggregate
