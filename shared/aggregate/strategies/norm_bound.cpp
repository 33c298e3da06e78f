#include "shared/aggregate/strategies/norm_bound.h"

#include <algorithm>
#include <cmath>

#include "shared/aggregate/kernels.h"

namespace atl::aggregate {
namespace {

constexpr std::size_t kUpdatesThatTell = 3;

// Of those above zero; 0: there are none.
double lower_median(std::vector<double> norms) {
    std::erase(norms, 0.0);
    if (norms.empty()) return 0;
    const auto middle = norms.begin() + static_cast<std::ptrdiff_t>((norms.size() - 1) / 2);
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
    std::vector<double> usual = prepared.norms;
    if (usual.size() < kUpdatesThatTell)
        usual.insert(usual.end(), measured.earlier_norms.begin(), measured.earlier_norms.end());
    prepared.bound = *times_ * lower_median(std::move(usual));
    for (std::size_t i = 0; i < prepared.norms.size() && prepared.bound > 0; ++i)
        if (prepared.norms[i] > prepared.bound) prepared.refused.push_back(i);
    return prepared;
}

}  // namespace atl::aggregate
