#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shared/aggregate/exact_sum.h"
#include "shared/aggregate/plan.h"
#include "shared/aggregate/reduce.h"

// The mean of the control variates that travel beside the updates (shared/delta/control_variate.h):
//   c = Σ share_i part_i c_i + (1 - Σ share_i) part c of the base, i in the updates' order, each factor rounded to
//   fp32, each operation rounded to fp32, the sum to BF16
// where part_i is what counts of c_i for its length, part the same of the base's (parts_of_variates() in defence.h),
// and the last summand stands for the updates that are absent. Where fewer than two count there is no mean. Internal to
// this module.
namespace atl::aggregate {

// Opens the inputs' control variates and adds the files of their mean to the output, where the strategy has them.
// Reads only headers; errors as Aggregator::plan(). Call with the plan's inputs and the model's files in their places.
Status plan_variates(Plan& plan);

// How many sums measuring them has, behind those of the updates: of each input's the squares, then of the base's own.
std::size_t variate_sums(const Plan& plan);

// Adds what the tiles [first, end) of a tensor of kind kVariate are measured to. Errors as Aggregator::measure().
Status measure_variate(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::uint64_t end,
                       std::span<ExactSum> sums, Scratch& scratch);

// Decides how much of each counts from now on, and whether there is a mean, from the sums over all files and from how
// much of each update does.
void prepare_variates(Plan& plan, std::span<const double> sums, std::vector<UpdateFigures>& figures);

// Makes the elements from the `first` on of a tensor of kind kVariate. Errors as Aggregator::read().
Status make_variate(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                    Scratch& scratch);

}  // namespace atl::aggregate
