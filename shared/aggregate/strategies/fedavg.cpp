#include <algorithm>
#include <cmath>
#include <numeric>

#include "shared/aggregate/kernels.h"
#include "shared/aggregate/strategies/strategies.h"

namespace atl::aggregate {
namespace {

// The most of the mean that one of so many updates may make.
double share_max(std::optional<double> max_share, std::size_t count) {
    const auto n = static_cast<double>(count);
    return std::max(max_share.value_or(std::min(2 / n, 2.0 / 3)), 1 / n);
}

// An update is believed to have seen a token at most so many times as often as another, where another has seen it at
// all. A site whose language is its own has seen its words that much more often than the others; one that lies about
// its counts gets at most twice another's weight in a row.
constexpr double kBelievedTimes = 4;

double believable_frequency(std::span<const std::span<const double>> frequencies, std::size_t row) {
    double largest = 0, second = 0;
    for (const std::span<const double> of_update : frequencies) {
        second = std::max(second, std::min(largest, of_update[row]));
        largest = std::max(largest, of_update[row]);
    }
    return second > 0 ? std::min(largest, kBelievedTimes * second) : largest;
}

class FedAvg final : public Strategy {
  public:
    explicit FedAvg(const StrategySpec& spec)
        : optimizer_(spec.server_optimizer), max_share_(spec.max_share), weighs_rows_(spec.weighs_rows) {}

    std::span<const std::string_view> state() const override {
        return optimizer_ ? outer_row(optimizer_->kind).state : std::span<const std::string_view>();
    }
    bool needs_base() const override { return optimizer_.has_value() || weighs_rows_; }
    bool needs_token_counts() const override { return weighs_rows_; }
    bool is_weighted_mean() const override { return !optimizer_ && !weighs_rows_; }

    Result<std::vector<double>> share_out(std::span<const double> weights) const override {
        return share_by_weight(weights, max_share_);
    }

    void combine(Block& block, std::span<const double> shares, std::span<float> result) const override {
        if (block.rows.width > 0)
            combine_rows(block, shares, result);
        else
            make_mean(block, shares, result);
        if (optimizer_) take_step(block, result);
    }

  private:
    void take_step(Block& block, std::span<float> result) const {
        const ServerOptimizer& outer = *optimizer_;
        const Kernels& kernels = best_kernels();
        if (outer.kind == OuterKind::kAdam)
            return kernels.adam(result.data(), block.state[0].data(), block.state[1].data(), block.base.data(),
                                {.rate = static_cast<float>(outer.learning_rate),
                                 .beta1 = static_cast<float>(outer.beta1),
                                 .of_gradient = static_cast<float>(1 - outer.beta1),
                                 .beta2 = static_cast<float>(outer.beta2),
                                 .of_square = static_cast<float>(1 - outer.beta2),
                                 .epsilon = static_cast<float>(outer.epsilon)},
                                block.size);
        const auto step = outer.kind == OuterKind::kNesterov ? kernels.nesterov : kernels.momentum;
        step(result.data(), block.state[0].data(), block.base.data(), static_cast<float>(outer.learning_rate),
             static_cast<float>(outer.beta1), block.size);
    }

    static void make_mean(const Block& block, std::span<const double> shares, std::span<float> result) {
        const Kernels& kernels = best_kernels();
        for (std::size_t i = 0; i < block.updates.size(); ++i)
            (i == 0 ? kernels.scale : kernels.add)(result.data(), block.updates[i].data(),
                                                   static_cast<float>(shares[i]), block.size);
    }

    static void combine_rows(const Block& block, std::span<const double> shares, std::span<float> result) {
        const Kernels& kernels = best_kernels();
        std::fill(result.begin(), result.end(), 0.0F);
        std::size_t at = 0;
        for (std::size_t row = 0; at < block.size; ++row) {
            const std::size_t count = std::min((row + 1) * block.rows.width - block.rows.begin, block.size) - at;
            const std::vector<double> weights = weigh_row(shares, block.rows.frequencies, row);
            for (std::size_t i = 0; i < weights.size(); ++i)
                kernels.add_part(&result[at], &block.updates[i][at], &block.base[at], static_cast<float>(weights[i]),
                                 count);
            kernels.add(&result[at], &block.base[at], 1, count);
            at += count;
        }
    }

    std::optional<ServerOptimizer> optimizer_;
    std::optional<double> max_share_;
    bool weighs_rows_;
};

}  // namespace

std::vector<double> weigh_row(std::span<const double> shares, std::span<const std::span<const double>> frequencies,
                              std::size_t row) {
    const double most = believable_frequency(frequencies, row);
    std::vector<double> weights;
    double squares = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        weights.push_back(shares[i] * std::sqrt(std::min(frequencies[i][row], most)));
        squares += weights[i] * weights[i];
    }
    if (!(squares > 0)) return {shares.begin(), shares.end()};
    for (double& weight : weights) weight /= std::sqrt(squares);
    return weights;
}

std::vector<double> share_by_weight(std::span<const double> weights, std::optional<double> max_share) {
    const auto counting = std::count_if(weights.begin(), weights.end(), [](double weight) { return weight > 0; });
    const double most = share_max(max_share, static_cast<std::size_t>(counting));
    double weight_left = std::accumulate(weights.begin(), weights.end(), 0.0);
    double share_left = 1;
    std::vector<double> shares(weights.size(), 0.0);
    std::vector<bool> capped(weights.size(), false);
    // What is taken from one may lift the next above the limit: again until none is.
    for (bool found = true; found;) {
        found = false;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            if (capped[i]) continue;
            shares[i] = share_left == 1 ? weights[i] / weight_left : share_left * (weights[i] / weight_left);
            if (shares[i] <= most || weights[i] == weight_left) continue;
            shares[i] = most;
            capped[i] = found = true;
            share_left -= most;
            weight_left -= weights[i];
        }
    }
    return shares;
}

Result<std::unique_ptr<const Strategy>> make_fedavg(const StrategySpec& spec) {
    if (const auto& optimizer = spec.server_optimizer) {
        if (!(optimizer->learning_rate > 0) || !std::isfinite(optimizer->learning_rate))
            return invalid_argument("lr", "the server optimizer's rate must be finite and greater than 0");
        if (!(optimizer->beta1 >= 0 && optimizer->beta1 < 1))
            return invalid_argument("momentum", "the server optimizer's momentum must be at least 0 and less than 1");
        if (!(optimizer->beta2 >= 0 && optimizer->beta2 < 1))
            return invalid_argument("beta2", "the server optimizer's beta2 must be at least 0 and less than 1");
        if (!(optimizer->epsilon > 0) || !std::isfinite(optimizer->epsilon))
            return invalid_argument("epsilon", "the server optimizer's epsilon must be finite and greater than 0");
    }
    return std::unique_ptr<const Strategy>(std::make_unique<FedAvg>(spec));
}

}  // namespace atl::aggregate
