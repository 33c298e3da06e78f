#include "trainer/parallel/gathered_weight_source.h"

#include <algorithm>
#include <utility>

namespace atl::parallel {

void GatheredWeightSource::lay_out(kernels::Backend& backend, const ParallelLayout& layout) {
    store_ = ParameterStore::lay_out(device_, model_, layout, nullptr, {});
    gather_ = ParameterGather::lay_out({device_, pinned_, *open_exchange_library(backend)}, store_);
}

Result<std::unique_ptr<GatheredWeightSource>> GatheredWeightSource::allocate(kernels::Backend& backend,
                                                                             const model::Model& model,
                                                                             const ParallelLayout& layout,
                                                                             Collectives& copy) {
    std::unique_ptr<GatheredWeightSource> weights(new GatheredWeightSource(model, copy));
    weights->lay_out(backend, layout);
    using kernels::Space;
    ATOLL_TRY(tensor::Memory device, backend.allocate(Space::kDevice, weights->device_.peak_bytes()));
    ATOLL_TRY(tensor::Memory pinned, backend.allocate(Space::kPinned, weights->pinned_.peak_bytes()));
    weights->device_ = Arena(std::move(device));
    weights->pinned_ = Arena(std::move(pinned));
    weights->lay_out(backend, layout);
    weights->store_.clear_weights(backend);
    return weights;
}

plan::Bytes GatheredWeightSource::need_bytes(kernels::Backend& backend, const model::Model& model,
                                             const ParallelLayout& layout, Collectives& copy) {
    GatheredWeightSource weights(model, copy);
    weights.lay_out(backend, layout);
    return {.host = weights.pinned_.peak_bytes(), .device = weights.device_.peak_bytes()};
}

void GatheredWeightSource::begin_block(std::size_t block) {
    block_ = block;
    of_block_ = gather_.acquire(copy_, block);
    // Not beyond the last: nothing may be under way when the text ends.
    if (block + 1 < model_.blocks.size()) gather_.prefetch(copy_, block + 1);
}

Tensor GatheredWeightSource::weights(std::size_t unit) {
    const auto& units = model_.blocks[block_]->units();
    const auto found = std::ranges::find(units, unit);
    check(found != units.end(), "weights of a unit that the block has not");
    return flat_range(of_block_[static_cast<std::size_t>(found - units.begin())], 0,
                      store_.shard_spec(unit).element_count);
}

}  // namespace atl::parallel
