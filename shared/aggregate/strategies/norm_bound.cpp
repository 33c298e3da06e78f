#include "shared/aggregate/strategies/norm_bound.h"

#include <algorithm>
#include <cmath>

#include "shared/aggregate/kernels.h"

namespace atl::aggregate {
namespace {

constexpr std::size_t kNormsThatTell = 3;

// The median of the norms above zero, of an even number the lower one where the round's own tell, the upper one where
// those of earlier rounds are needed. 0: too few tell.
double usual_norm(std::vector<double> norms, std::span<const double> earlier) {
    std::erase(norms, 0.0);
    const bool tell = norms.size() >= kNormsThatTell;
    if (!tell) {
        norms.insert(norms.end(), earlier.begin(), earlier.end());
        std::erase(norms, 0.0);
    }
    if (norms.size() < kNormsThatTell) return 0;
    const auto middle = norms.begin() + static_cast<std::ptrdiff_t>((norms.size() - (tell ? 1 : 0)) / 2);
    std::nth_element(norms.begin(), middle, norms.end());
    return *middle;
}

}  // namespace

void NormBounded::measure(const Block& block, std::span<double> statistics) const {
    for (std::size_t i = 0; i < block.updates.size(); ++i)
        statistics[i] += best_kernels().squared_distance(block.updates[i].data(), block.base.data(), block.size);
}

Result<Prepared> NormBounded::prepare(const Measured& measured) const {
    Prepared prepared;
    ATOLL_TRY(prepared.shares, share_out(measured.weights));
    if (!times_ || measured.statistics.empty()) return prepared;
    for (const double square : measured.statistics) prepared.norms.push_back(std::sqrt(square));
    prepared.bound = measured.bound > 0 ? measured.bound : *times_ * usual_norm(prepared.norms, measured.earlier_norms);
    for (std::size_t i = 0; i < prepared.norms.size() && prepared.bound > 0; ++i)
        if (prepared.norms[i] > prepared.bound) prepared.refused.push_back(i);
    return prepared;
}

}  // namespace atl::aggregate
