#include <array>
#include <cmath>
#include <numeric>

#include "shared/aggregate/kernels.h"
#include "shared/aggregate/strategies/strategies.h"

namespace atl::aggregate {
namespace {

class FedAvg final : public Strategy {
  public:
    explicit FedAvg(std::optional<ServerOptimizer> optimizer) : optimizer_(optimizer) {}

    std::span<const std::string_view> state() const override {
        static constexpr std::array<std::string_view, 1> kState = {"momentum"};
        return std::span(kState).first(optimizer_ ? 1 : 0);
    }
    bool needs_base() const override { return optimizer_.has_value(); }
    bool is_weighted_mean() const override { return !optimizer_; }

    Result<std::vector<double>> prepare(std::span<const double> weights) const override {
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        std::vector<double> shares;
        for (const double weight : weights) shares.push_back(weight / sum);
        return shares;
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
};

}  // namespace

Result<std::unique_ptr<const Strategy>> make_fedavg(const StrategySpec& spec) {
    if (const auto& optimizer = spec.server_optimizer) {
        if (!(optimizer->learning_rate > 0) || !std::isfinite(optimizer->learning_rate))
            return invalid_argument("lr", "the server optimizer's rate must be finite and greater than 0");
        if (!(optimizer->beta1 >= 0 && optimizer->beta1 < 1))
            return invalid_argument("momentum", "the server optimizer's momentum must be at least 0 and less than 1");
    }
    return std::unique_ptr<const Strategy>(std::make_unique<FedAvg>(spec.server_optimizer));
}

}  // namespace atl::aggregate
