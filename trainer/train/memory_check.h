#pragma once

#include <cstdint>
#include <functional>

#include "trainer/train/prepare.h"

namespace atl::train {

plan::Settings memory_settings(const PreparedRun& prepared);

// The memory that a rank of the run needs under other settings.
plan::MemoryPlan measure_with(const PreparedRun& prepared, const plan::Settings& settings, kernels::Backend& backend,
                              int rank, int ranks);

// kResourceExhausted when a rank needs more than its share of what this machine has left; the message names the
// settings that would fit. Every rank takes part and gets the same outcome.
Status check_fits(const PreparedRun& prepared, kernels::Backend& backend, comm::Comm& comm);

// The same for a command that only reads the model, so many rows at a time; need_bytes says what a rank takes for them.
Status check_fits(std::int64_t rows, const std::function<std::int64_t(std::int64_t rows)>& need_bytes,
                  comm::Comm& comm);

// The same judgement for `ranks` ranks that each may take `limit_bytes`.
Status check_memory(const PreparedRun& prepared, kernels::Backend& backend, int ranks, std::int64_t limit_bytes);

}  // namespace atl::train
