#include "shared/aggregate/defence.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace atl::aggregate {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr std::size_t kChangesThatTell = 3;
constexpr std::size_t kVariatesMin = 2;  // that a mean is made of

// The longest that a change of this norm would be had it been made with the other effort.
double at_effort(double norm, double effort, double other) {
    if (!(effort > 0) || !(other > 0)) return norm;
    const double times = other / effort;
    return norm * (times > 1 ? times : std::sqrt(times));
}

// Of an even number the lower or the upper one of the middle two. There is one at least.
double median(std::vector<double> values, bool is_upper) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - (is_upper ? 0 : 1)) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

class Usual {
  public:
    Usual(std::span<const Change> changes, std::span<const EarlierNorm> earlier)
        : changes_(changes), earlier_(earlier) {
        tell_ = static_cast<std::size_t>(
            std::count_if(changes.begin(), changes.end(), [](const Change& one) { return one.norm > 0; }));
    }

    // The norm that is usual for this update with that effort; infinity: not known.
    double of(std::size_t update, double effort) const {
        std::vector<double> all;
        for (const Change& one : changes_)
            if (one.norm > 0) all.push_back(at_effort(one.norm, one.effort, effort));
        if (tell_ >= kChangesThatTell) return median(std::move(all), /*is_upper=*/false);
        std::vector<double> own;
        bool others = tell_ > (changes_[update].norm > 0 ? 1 : 0);
        for (const EarlierNorm& one : earlier_) {
            if (!(one.norm > 0)) continue;
            all.push_back(at_effort(one.norm, one.effort, effort));
            if (one.update == update)
                own.push_back(all.back());
            else
                others = true;
        }
        if (!others || own.empty() || all.size() < kChangesThatTell) return kUnknown;
        return std::max(median(std::move(all), /*is_upper=*/true), median(std::move(own), /*is_upper=*/true));
    }

  private:
    std::span<const Change> changes_;
    std::span<const EarlierNorm> earlier_;
    std::size_t tell_;
};

}  // namespace

double find_reach(const Assignment& assigned, double elements, double base_norm) {
    constexpr double kRounding = 0x1p-8;  // of bf16, relative
    if (!(assigned.element_max > 0) && !(assigned.norm_max > 0)) return 0;
    const double moved = assigned.norm_max > 0 ? assigned.norm_max : assigned.element_max * std::sqrt(elements);
    return moved + (assigned.decay + kRounding) * base_norm;
}

// ‖B'A' − B A‖ ≤ ‖ΔB‖ ‖A‖ + ‖B‖ ‖ΔA‖ + ‖ΔB‖ ‖ΔA‖, and by Cauchy and Schwarz over all of them.
double find_reach_of_product(double reach, double base_norm, double scale) {
    return scale * (reach * base_norm + reach * reach / 2);
}

std::vector<double> parts_that_count(std::span<const Change> changes, std::span<const EarlierNorm> earlier,
                                     const StrategySpec& strategy) {
    const Usual usual(changes, earlier);
    std::vector<double> parts;
    for (std::size_t i = 0; i < changes.size(); ++i) {
        const Change& one = changes[i];
        const double reach = one.reach > 0 ? one.reach : kUnknown, claimed = std::max(one.claimed, 1.0);
        const double most = strategy.clip ? std::min(*strategy.clip * usual.of(i, one.effort), reach) : kUnknown;
        const double farthest =
            strategy.drop ? *strategy.drop * std::min(usual.of(i, one.effort * claimed), reach) : kUnknown;
        const double norm = one.norm;
        parts.push_back(norm > farthest ? 0 : norm > most ? most / norm : 1);
    }
    return parts;
}

VariateParts parts_of_variates(std::span<const double> norms, std::span<const double> counted, double base_norm,
                               const StrategySpec& strategy) {
    const double usual = median({norms.begin(), norms.end()}, /*is_upper=*/false);
    const double most = strategy.clip ? *strategy.clip * usual : kUnknown;
    const double farthest = strategy.drop ? *strategy.drop * usual : kUnknown;
    VariateParts parts;
    std::size_t count = 0;
    for (std::size_t i = 0; i < norms.size(); ++i) {
        const double norm = norms[i], part = norm > farthest ? 0 : norm > most ? most / norm : 1;
        parts.updates.push_back(counted[i] > 0 ? part : 0);
        if (norm > 0 && parts.updates.back() > 0) ++count;
    }
    parts.are_too_few = count < kVariatesMin;
    if (parts.are_too_few) std::ranges::fill(parts.updates, 0.0);
    if (base_norm > most) parts.base = most / base_norm;
    return parts;
}

std::vector<double> believable_weights(std::vector<double> weights, std::span<const Assignment> assigned) {
    std::vector<double> densities;  // weight a token
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (i >= assigned.size() || !(assigned[i].tokens > 0)) return weights;
        if (weights[i] > 0) densities.push_back(weights[i] / assigned[i].tokens);
    }
    if (densities.empty()) return weights;
    const double usual = median(std::move(densities), /*is_upper=*/false);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = std::min(weights[i], usual * assigned[i].tokens);
    return weights;
}

}  // namespace atl::aggregate
