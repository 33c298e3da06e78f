#include "trainer/parallel/recompute.h"

namespace atl::parallel {

using model::Keep;

Keep keep_of_block(const Checkpointing& checkpointing, const model::Model& model, std::size_t block) {
    if (!model.blocks[block]->is_layer()) return Keep::kAll;
    const std::size_t layer = block - 1;  // after the embedding
    if (checkpointing.layers > 0 && layer >= static_cast<std::size_t>(checkpointing.layers)) return Keep::kAll;
    switch (checkpointing.what) {
        case ActivationCheckpointing::kNone:
            return Keep::kAll;
        case ActivationCheckpointing::kFeedForward:
            return Keep::kWithoutFeedForward;
        case ActivationCheckpointing::kSelective:
            return layer % 2 == 0 ? Keep::kInput : Keep::kAll;
        case ActivationCheckpointing::kAllButAttention:
            return Keep::kAttention;
        case ActivationCheckpointing::kFull:
            return Keep::kInput;
    }
    return Keep::kAll;
}

double recomputed_flops(const Checkpointing& checkpointing, const model::Model& model, const model::BatchShape& shape) {
    double flops = 0;
    for (std::size_t block = 0; block < model.blocks.size(); ++block)
        flops += model.blocks[block]->recompute_flops(shape, keep_of_block(checkpointing, model, block));
    return flops;
}

}  // namespace atl::parallel
