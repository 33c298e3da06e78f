#pragma once

#include "shared/aggregate/strategy.h"

// Internal to this module.
namespace atl::aggregate {

// A strategy that refuses updates which moved farther from the base than any honest one would. An update's norm is
// ‖update - base‖ over all floating tensors, differences and squares in fp64. The bound is `norm_bound` times the lower
// median of the updates' norms; where fewer than three are there to tell what is usual, the upper median of those and
// of the norms of earlier rounds; where these are fewer than three too, there is no bound. So of two updates neither
// can have the other refused by its own norm. Updates that moved nothing tell nothing. A round has one bound: those
// that are left when some are refused are held against the same. Without a norm_bound nothing is measured.
class NormBounded : public Strategy {
  public:
    explicit NormBounded(std::optional<double> norm_bound) : times_(norm_bound) {}

    std::size_t statistics_per_update() const override { return times_ ? 1 : 0; }  // the norm's square
    void measure(const Block& block, std::span<double> statistics) const override;
    Result<Prepared> prepare(const Measured& measured) const override;

  private:
    // Each update's share of the result. kInvalidArgument naming "weights" where they cannot be followed.
    virtual Result<std::vector<double>> share_out(std::span<const double> weights) const = 0;

    std::optional<double> times_;
};

}  // namespace atl::aggregate
