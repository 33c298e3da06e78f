#include "trainer/train/parameter_store.h"

namespace atl::train {
namespace {

using tensor::Category;
using tensor::DType;

}  // namespace

ParameterStore ParameterStore::lay_out(Arena& arena, const model::Model& model, const Division& division,
                                       const optim::Optimizer* optimizer) {
    ParameterStore store;
    store.model_ = &model;
    store.division_ = division;
    store.moment_count_ = optimizer == nullptr ? 0 : optimizer->moment_count();
    store.cuts_ = cut_groups(model, division);
    const auto length = [](const GroupCut& cut, bool sharded) { return sharded ? cut.shard : cut.whole; };
    std::int64_t elements = 0;
    for (std::size_t group = 0; group < store.cuts_.size(); ++group) {
        const GroupCut& cut = store.cuts_[group];
        store.first_elements_.push_back(elements);
        elements += cut.element_count;
        store.weights_.push_back(
            arena.allocate(model.groups[group].is_quantized() ? Category::kQuantized : Category::kWeights,
                           store.storage(group), {length(cut, shards_weights(division.sharding))}));
        store.masters_.emplace_back();
        if (optimizer == nullptr) continue;
        const std::int64_t updated = length(cut, shards_moments(division.sharding));
        const auto allocate = [&](Category category, DType dtype, std::int64_t count) {
            return store.trains(group) ? arena.allocate(category, dtype, {count}) : Tensor();
        };
        if (store.storage(group) != DType::kF32)
            store.masters_.back() = allocate(Category::kMasters, DType::kF32, updated);
        store.gradients_.push_back(
            allocate(Category::kGradients, DType::kF32, length(cut, shards_gradients(division.sharding))));
        for (int which = 0; which < store.moment_count_; ++which) {
            store.moments_[static_cast<std::size_t>(which)].push_back(
                allocate(Category::kMoments, optimizer->moments_dtype, updated));
        }
        store.runs_.push_back(store.find_runs(group));
    }
    return store;
}

std::vector<ParameterStore::Run> ParameterStore::find_runs(std::size_t group) const {
    const model::ParameterGroup& parameters = model_->groups[group];
    const UpdateRange range = update_range(group);
    std::vector<Run> runs;
    for (const Piece& piece : pieces_of(parameters, range.begin, range.count)) {
        const bool is_norm = parameters.parameters[piece.parameter].is_norm;
        if (runs.empty() || runs.back().is_norm != is_norm) runs.push_back({piece.at, 0, is_norm});
        runs.back().count += piece.count;
    }
    return runs;
}

ParameterStore::UpdateRange ParameterStore::update_range(std::size_t group) const {
    const GroupCut& cut = cuts_[group];
    return shards_moments(sharding()) ? UpdateRange{cut.begin, cut.shard} : UpdateRange{0, cut.whole};
}

Tensor ParameterStore::shard_of(const Tensor& tensor, const GroupCut& cut) {
    return tensor.element_count() == cut.shard ? tensor : flat_range(tensor, cut.begin, cut.shard);
}

Tensor ParameterStore::own_gradients(std::size_t group) const {
    const std::int64_t count = cuts_[group].shard / division_.copies();
    return flat_range(gradient_shard(group), count * division_.copy(), count);
}

void ParameterStore::clear_weights(kernels::Backend& backend) const {
    for (std::size_t group = 0; group < cuts_.size(); ++group) {
        backend.zero(weights_[group]);
        if (has_masters(group)) backend.zero(masters_[group]);
    }
}

void ParameterStore::clear_moments(kernels::Backend& backend) const {
    for (const auto& moments : moments_) {
        for (const Tensor& moment : moments) {
            if (!moment.empty()) backend.zero(moment);
        }
    }
}

void ParameterStore::update(kernels::Backend& backend, comm::Comm& comm, const optim::Optimizer& optimizer,
                            const Update& update) const {
    for (std::size_t group = 0; group < cuts_.size(); ++group) {
        if (!trains(group)) continue;
        update_group(backend, optimizer, update, group);
        if (shards_moments(sharding()) && !shards_weights(sharding())) {
            backend.synchronize();
            comm.all_gather(weight_shard(group).bytes(), weights(group).bytes());
        }
    }
}

void ParameterStore::update_group(kernels::Backend& backend, const optim::Optimizer& optimizer, const Update& update,
                                  std::size_t group) const {
    const bool sharded = shards_moments(sharding());
    const Tensor kept = sharded ? weight_shard(group) : weights_[group];
    const Tensor gradients = sharded ? gradient_shard(group) : gradients_[group];
    const std::int64_t first_element = first_elements_[group] + update_range(group).begin;
    for (const Run& run : runs_[group]) {
        const auto part = [&](const Tensor& flat) { return flat_range(flat, run.begin, run.count); };
        optimizer.update(backend, update.step, update.learning_rate, update.gradient_scale,
                         update.decay_norms || !run.is_norm,
                         {.weights = part(has_masters(group) ? masters_[group] : kept),
                          .gradients = part(gradients),
                          .first_moments = moment_count_ > 0 ? part(moments(0, group)) : Tensor(),
                          .second_moments = moment_count_ > 1 ? part(moments(1, group)) : Tensor(),
                          .stored = has_masters(group) ? part(kept) : Tensor(),
                          .seed = update.seed,
                          .first_element = first_element + run.begin});
    }
}

}  // namespace atl::train
