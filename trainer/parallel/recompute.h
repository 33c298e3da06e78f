#pragma once

#include "shared/run_settings/choices.h"
#include "trainer/model/model.h"

namespace atl::parallel {

using run_settings::ActivationCheckpointing;

// Whether what a block saves is computed once more before its backward pass.
bool recomputes(ActivationCheckpointing checkpointing, const model::Model& model, std::size_t block);
// How many operations that adds to a step.
double recomputed_flops(ActivationCheckpointing checkpointing, const model::Model& model,
                        const model::BatchShape& shape);

}  // namespace atl::parallel
