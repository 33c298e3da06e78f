#include "trainer/parallel/gathered_weights.h"

#include <algorithm>
#include <utility>

namespace atl::parallel {

void GatheredWeights::lay_out(const Division& division) {
    store_ = ParameterStore::lay_out(arena_, model_, division, nullptr);
    gather_ = WeightGather::lay_out(arena_, store_);
}

Result<std::unique_ptr<GatheredWeights>> GatheredWeights::allocate(kernels::Backend& backend, const model::Model& model,
                                                                   const Division& division, comm::Comm& copy) {
    std::unique_ptr<GatheredWeights> weights(new GatheredWeights(model, copy));
    weights->backend_ = &backend;
    weights->lay_out(division);
    ATOLL_TRY(tensor::Memory memory, backend.allocate(weights->arena_.peak_bytes()));
    weights->arena_ = Arena(std::move(memory));
    weights->lay_out(division);
    weights->store_.clear_weights(backend);
    return weights;
}

std::int64_t GatheredWeights::need_bytes(const model::Model& model, const Division& division, comm::Comm& copy) {
    GatheredWeights weights(model, copy);
    weights.lay_out(division);
    return weights.arena_.peak_bytes();
}

void GatheredWeights::begin_block(std::size_t block) {
    block_ = block;
    of_block_ = gather_.acquire(*backend_, copy_, block);
    // Not beyond the last: nothing may be under way when the text ends.
    if (block + 1 < model_.blocks.size()) gather_.prefetch(*backend_, copy_, block + 1);
}

Tensor GatheredWeights::weights(std::size_t group) {
    const auto& groups = model_.blocks[block_]->groups();
    const auto found = std::ranges::find(groups, group);
    check(found != groups.end(), "weights of a group that the block has not");
    return flat_range(of_block_[static_cast<std::size_t>(found - groups.begin())], 0, store_.cut(group).element_count);
}

}  // namespace atl::parallel
