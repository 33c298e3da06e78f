#include "trainer/parallel/gathered_weight_source.h"

#include <algorithm>
#include <utility>

namespace atl::parallel {

void GatheredWeightSource::lay_out(const ParallelLayout& layout) {
    store_ = ParameterStore::lay_out(arena_, model_, layout, nullptr, {});
    gather_ = ParameterGather::lay_out(arena_, store_);
}

Result<std::unique_ptr<GatheredWeightSource>> GatheredWeightSource::allocate(kernels::Backend& backend,
                                                                             const model::Model& model,
                                                                             const ParallelLayout& layout,
                                                                             Collectives& copy) {
    std::unique_ptr<GatheredWeightSource> weights(new GatheredWeightSource(model, copy));
    weights->lay_out(layout);
    ATOLL_TRY(tensor::Memory memory, backend.allocate(kernels::Space::kDevice, weights->arena_.peak_bytes()));
    weights->arena_ = Arena(std::move(memory));
    weights->lay_out(layout);
    weights->store_.clear_weights(backend);
    return weights;
}

std::int64_t GatheredWeightSource::need_bytes(const model::Model& model, const ParallelLayout& layout,
                                              Collectives& copy) {
    GatheredWeightSource weights(model, copy);
    weights.lay_out(layout);
    return weights.arena_.peak_bytes();
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
