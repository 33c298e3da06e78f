#pragma once

#include "shared/run_settings/choices.h"
#include "trainer/model/model.h"

namespace atl::parallel {

using run_settings::ActivationCheckpointing;

// What the backward pass computes again, and of how many layers, from the first on; 0: of all. kSelective is kFull of
// every second layer.
struct Checkpointing {
    ActivationCheckpointing what = ActivationCheckpointing::kNone;
    std::int64_t layers = 0;
    bool operator==(const Checkpointing&) const = default;
};

model::Keep keep_of_block(const Checkpointing& checkpointing, const model::Model& model, std::size_t block);
// How many operations it adds to a step.
double recomputed_flops(const Checkpointing& checkpointing, const model::Model& model, const model::BatchShape& shape);

}  // namespace atl::parallel
