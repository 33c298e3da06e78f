#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/parallel/process_groups.h"
#include "trainer/parallel/run_memory.h"

namespace atl::train {

// Where values that are not finite come from, after a step whose loss or gradient is not: what begins first, of all
// ranks, as the end of a message. In this order: weights ("first in the weight model.layers.3.mlp.down_proj.weight"),
// outputs of blocks ("first in the output of layers.3"), for which the step's forward passes run once more, and
// gradients, from the last block to the first ("first in the gradient of model.layers.3.mlp.down_proj.weight"), which
// `make_gradients` makes once more: a device may have begun the next step, and those are its. Every rank takes part and
// gets the same text. `load_rows(micro)` puts this rank's rows of a micro-step, from 0, into the memory's batch.
std::string find_not_finite(parallel::RunMemory& memory, kernels::Backend& backend, parallel::ProcessGroups& ranks,
                            std::int64_t micro_steps, const std::function<void(std::int64_t micro)>& load_rows,
                            const std::function<void()>& make_gradients);

}  // namespace atl::train
