#pragma once

#include <cstdint>
#include <functional>

#include "trainer/train/prepare.h"

namespace atl::train {

plan::Settings memory_settings(const PreparedRun& prepared);

// The memory that a rank of the run needs under other settings.
plan::MemoryPlan measure_with(const PreparedRun& prepared, const plan::Settings& settings, kernels::Backend& backend,
                              int rank, int ranks);

// What a rank may take of its device's own memory where so many share it: of what is free now, less what the driver may
// still take. More than there ever is where the host's memory is the device's.
std::int64_t device_share_bytes(const kernels::Backend& backend, int ranks);

// kResourceExhausted when a rank needs more than its share of what this machine has left, or its GPU; the message names
// the settings that would fit. Every rank takes part and gets the same outcome.
Status check_fits(const PreparedRun& prepared, kernels::Backend& backend, comm::Comm& comm);

// The same for a command that only reads the model, so many rows at a time; need_bytes says what a rank takes for them.
Status check_fits(const kernels::Backend& backend, std::int64_t rows,
                  const std::function<plan::Bytes(std::int64_t rows)>& need_bytes, comm::Comm& comm);

// The same judgement for `ranks` ranks that each may take `limit`.
Status check_memory(const PreparedRun& prepared, kernels::Backend& backend, int ranks, const plan::Bytes& limit);

}  // namespace atl::train
