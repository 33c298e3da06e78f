#pragma once

#include <memory>

#include "shared/aggregate/strategy.h"

// The strategies that there are, each in a file of its own. Internal to this module: make_strategy() chooses.
namespace atl::aggregate {

// Shares in proportion to the weights, none above `max_share` (none: min(2/N, 2/3) of N), and an update of no weight
// gets none.
std::vector<double> share_by_weight(std::span<const double> weights, std::optional<double> max_share);

// The weight of each update's change in a row of embedding or head, from its share and from which part of its tokens
// were the row's: a_i = share_i √f_i / √Σ share_j² f_j, so that Σ a_i² = 1. A row that one site alone has seen gets
// that site's whole step, one that two have seen gets √2 times their mean. Where nobody has seen it a_i is the share.
// The largest f_i counts as at most four times the second largest where that is not zero: so whatever an update says of
// its tokens, in a row that others have seen it weighs at most twice what it would had it seen the token as often as
// they.
std::vector<double> weigh_row(std::span<const double> shares, std::span<const std::span<const double>> frequencies,
                              std::size_t row);

// The weighted mean (FedAvg, McMahan et al. 2017, https://arxiv.org/abs/1602.05629), the shares in proportion to the
// weights:
//   mean = Σ share_i x_i, i in the updates' order, each share rounded to fp32, each operation rounded to fp32
// With row weights the rows of embedding and head are base + Σ a_i (x_i - base) instead, each a_i of weigh_row()
// rounded to fp32, each operation rounded to fp32; it stands for the mean in what follows.
// With a server optimizer the result is not the mean but the optimizer's step from the base (strategy.h), whose fp32
// momentum is kept as the state "momentum".
Result<std::unique_ptr<const Strategy>> make_fedavg(const StrategySpec& spec);

// The coordinate-wise trimmed mean (Yin et al. 2018, https://arxiv.org/abs/1803.01498): of the N values that the
// updates have for an element the k smallest and the k largest are left out, and the others' sum, in ascending order,
// is divided by their number, all in fp32. So less than a fraction `trim` of lying updates moves no element beyond what
// honest ones hold, whatever they claim. k = trim x N rounded up, so that of three or more one is cut on each side, but
// never all: at most (N - 1) / 2, where the result is the median (of an even N the mean of the middle two). trim = 0:
// the plain mean. Every update counts alike: weights that differ are refused. It keeps no state and needs no base.
Result<std::unique_ptr<const Strategy>> make_trimmed_mean(const StrategySpec& spec);

// The same with as much cut as can be, so that the median is left.
Result<std::unique_ptr<const Strategy>> make_median(const StrategySpec& spec);

// The weighted mean of what LoRA adapters add to their model, M = Σ share_i scale_i B_i A_i, brought back to an
// adapter: of all B A of the base's rank it is the nearest to M (Eckart and Young 1936), with singular values shared
// out evenly between both, and the base's alpha. Adapters may have ranks and alphas of their own. M itself is never
// made (low_rank.h). Where M has less rank than the adapter the rows of A that are left over stay as they were and B is
// zero there, so that they can still be trained. It keeps no state and needs no base.
Result<std::unique_ptr<const Strategy>> make_product(const StrategySpec& spec);

}  // namespace atl::aggregate
