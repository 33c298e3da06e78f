#include <algorithm>

#include "shared/aggregate/low_rank.h"
#include "shared/aggregate/strategies/strategies.h"
#include "shared/base/check.h"

namespace atl::aggregate {
namespace {

class Product final : public Strategy {
  public:
    explicit Product(const StrategySpec& spec) : max_share_(spec.max_share) {}

    bool is_of_adapters() const override { return true; }

    Result<std::vector<double>> share_out(std::span<const double> weights) const override {
        return share_by_weight(weights, max_share_);
    }

    void combine(Block&, std::span<const double>, std::span<float>) const override {
        check(false, "product has no tensors but those of pairs");
    }

    Nearest combine_pair(AdapterPair& pair) const override {
        for (std::size_t model = 0; model < pair.models.size(); ++model)
            std::fill_n(pair.b.factors.begin() + static_cast<std::ptrdiff_t>(pair.models[model].first),
                        pair.models[model].count, pair.amounts[model]);
        Nearest nearest = find_nearest(pair.b, pair.a, pair.start_a.columns);
        for (std::size_t j = nearest.used; j < nearest.right.columns; ++j)
            std::ranges::copy(pair.start_a.column(j), nearest.right.column(j).begin());
        return nearest;
    }

  private:
    std::optional<double> max_share_;
};

}  // namespace

Result<std::unique_ptr<const Strategy>> make_product(const StrategySpec& spec) {
    return std::unique_ptr<const Strategy>(std::make_unique<Product>(spec));
}

}  // namespace atl::aggregate
