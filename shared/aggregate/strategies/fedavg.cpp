#include <algorithm>
#include <array>
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

class FedAvg final : public Strategy {
  public:
    explicit FedAvg(const StrategySpec& spec) : optimizer_(spec.server_optimizer), max_share_(spec.max_share) {}

    std::span<const std::string_view> state() const override {
        static constexpr std::array<std::string_view, 1> kState = {"momentum"};
        return std::span(kState).first(optimizer_ ? 1 : 0);
    }
    bool needs_base() const override { return optimizer_.has_value(); }
    bool is_weighted_mean() const override { return !optimizer_; }

    Result<std::vector<double>> share_out(std::span<const double> weights) const override {
        return share_by_weight(weights, max_share_);
    }

    void combine(Block& block, std::span<const double> shares, std::span<float> result) const override {
        const Kernels& kernels = best_kernels();
        for (std::size_t i = 0; i < block.updates.size(); ++i)
            (i == 0 ? kernels.scale : kernels.add)(result.data(), block.updates[i].data(),
                                                   static_cast<float>(shares[i]), block.size);
        if (!optimizer_) return;
        kernels.nesterov(result.data(), block.state[0].data(), block.base.data(),
                         static_cast<float>(optimizer_->learning_rate), static_cast<float>(optimizer_->beta1),
                         block.size);
    }

  private:
    std::optional<ServerOptimizer> optimizer_;
    std::optional<double> max_share_;
};

}  // namespace

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
    }
    return std::unique_ptr<const Strategy>(std::make_unique<FedAvg>(spec));
}

}  // namespace atl::aggregate
