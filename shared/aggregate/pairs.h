#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shared/aggregate/exact_sum.h"
#include "shared/aggregate/plan.h"
#include "shared/aggregate/reduce.h"

// Both matrices of an adapter, read whole and made together. A thread keeps what it made last, so that whoever makes
// the output in order makes each pair once. Internal to this module.
namespace atl::aggregate {

// Makes the elements of one of a pair's tensors from the `first` on, as many as `into` holds. Errors as
// Aggregator::read().
Status make_factor(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                   Scratch& scratch);

// What the pair lost goes to scratch.truncation.
Status count_truncation(const Plan& plan, const Tensor& tensor, Scratch& scratch);

// Adds what measure_tiles() says, of what the adapters add to their model; of the base the squares of its two matrices.
// Errors as Aggregator::measure().
Status measure_pair(const Plan& plan, const Tensor& tensor, std::span<ExactSum> sums, Scratch& scratch);

}  // namespace atl::aggregate
