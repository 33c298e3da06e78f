#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "shared/aggregate/strategies/strategies.h"
#include "shared/numeric/conversions.h"

namespace atl::aggregate {
namespace {

class TrimmedMean final : public Strategy {
  public:
    explicit TrimmedMean(const StrategySpec& spec) : trim_(spec.trim) {}

    Result<std::vector<double>> share_out(std::span<const double> weights) const override {
        if (std::any_of(weights.begin(), weights.end(), [&](double weight) { return weight != weights.front(); }))
            return invalid_argument("weights", "must be equal: a trimmed mean counts every update alike");
        return std::vector<double>(weights.size(), 1.0 / static_cast<double>(weights.size()));
    }

    void combine(Block& block, std::span<const double>, std::span<float> result) const override {
        const std::size_t count = block.updates.size();
        for (const auto& update : block.updates)
            if (!numeric::conversions().all_finite(update.data(), block.size))  // it could be cut, or spoil the order
                return std::fill(result.begin(), result.end(), std::numeric_limits<float>::quiet_NaN());
        const std::size_t cut = cut_each_side(count);
        std::vector<float> values(count);
        for (std::size_t at = 0; at < block.size; ++at) {
            for (std::size_t i = 0; i < count; ++i) values[i] = block.updates[i][at];
            std::sort(values.begin(), values.end());
            const auto kept = std::span(values).subspan(cut, count - 2 * cut);
            result[at] = std::accumulate(kept.begin(), kept.end(), 0.0F) / static_cast<float>(kept.size());
        }
    }

  private:
    std::size_t cut_each_side(std::size_t count) const {
        constexpr double kRounding = 1e-9;  // 0.1 x 30 is 3, whatever its product in fp64
        const double wanted = std::ceil(trim_ * static_cast<double>(count) - kRounding);
        return std::min(static_cast<std::size_t>(std::max(wanted, 0.0)), (count - 1) / 2);
    }

    double trim_;
};

}  // namespace

Result<std::unique_ptr<const Strategy>> make_trimmed_mean(const StrategySpec& spec) {
    if (!(spec.trim >= 0 && spec.trim < 0.5))
        return invalid_argument("trim", "the fraction that is cut on each side must be at least 0 and less than 0.5");
    return std::unique_ptr<const Strategy>(std::make_unique<TrimmedMean>(spec));
}

Result<std::unique_ptr<const Strategy>> make_median(const StrategySpec& spec) {
    StrategySpec cut = spec;
    cut.trim = kTrim.maximum;
    return make_trimmed_mean(cut);
}

}  // namespace atl::aggregate
