#include "shared/aggregate/defence.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace atl::aggregate {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr std::size_t kChangesThatTell = 3;

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

    // The norm that is usual for this update; infinity: not known.
    double of(std::size_t update) const {
        const double effort = changes_[update].effort;
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
    if (!(assigned.element_max > 0)) return 0;
    return assigned.element_max * std::sqrt(elements) + (assigned.decay + kRounding) * base_norm;
}

std::vector<double> parts_that_count(std::span<const Change> changes, std::span<const EarlierNorm> earlier,
                                     const StrategySpec& strategy) {
    const Usual usual(changes, earlier);
    std::vector<double> parts;
    for (std::size_t i = 0; i < changes.size(); ++i) {
        const double expected = usual.of(i);
        const double reach = changes[i].reach > 0 ? changes[i].reach : kUnknown;
        const double most = strategy.clip ? std::min(*strategy.clip * expected, reach) : kUnknown;
        const double farthest = strategy.drop ? *strategy.drop * std::min(expected, reach) : kUnknown;
        const double norm = changes[i].norm;
        parts.push_back(norm > farthest ? 0 : norm > most ? most / norm : 1);
    }
    return parts;
}

}  // namespace atl::aggregate
