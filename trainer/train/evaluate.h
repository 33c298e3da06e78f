#pragma once

#include <functional>
#include <optional>

#include "trainer/train/json_lines.h"
#include "trainer/train/prepare.h"
#include "trainer/train/row_prefetch.h"

namespace atl::train {

// The token-weighted mean loss over the data's rows, in file order, `micro` rows a rank at a time. Every rank takes
// part and gets the same result. When micro is 1 the losses are added by row, so that the number of ranks does not
// change the bits.
Perplexity evaluate(parallel::RunMemory& memory, kernels::Backend& backend, parallel::ProcessGroups& ranks,
                    const CheckedData& data, std::int64_t micro);
// The same; absent when `stop` says so between two of those times. It gets the seconds that the longest of them took
// and is called by every rank, which all have to get the same answer.
std::optional<Perplexity> evaluate_unless(const std::function<bool(double longest_s)>& stop,
                                          parallel::RunMemory& memory, kernels::Backend& backend,
                                          parallel::ProcessGroups& ranks, const CheckedData& data, std::int64_t micro);

// Takes the rows of a range and copies them into the device's batch. Returns how many targets count in the loss. The
// rows were checked before.
std::int64_t load_rows(parallel::RunMemory& memory, kernels::Backend& backend, RowPrefetch& prefetch,
                       const RowRange& range);

}  // namespace atl::train
