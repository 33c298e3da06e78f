#include "trainer/parallel/recompute.h"

namespace atl::parallel {

bool recomputes(ActivationCheckpointing checkpointing, const model::Model& model, std::size_t block) {
    // The embedding and the head save nothing.
    if (checkpointing == ActivationCheckpointing::kNone || model.blocks[block]->saved_bytes({1, 1}) == 0) return false;
    return checkpointing == ActivationCheckpointing::kFull || block % 2 == 1;
}

double recomputed_flops(ActivationCheckpointing checkpointing, const model::Model& model,
                        const model::BatchShape& shape) {
    double flops = 0;
    for (std::size_t block = 0; block < model.blocks.size(); ++block) {
        if (recomputes(checkpointing, model, block)) flops += model.blocks[block]->recompute_flops(shape);
    }
    return flops;
}

}  // namespace atl::parallel
