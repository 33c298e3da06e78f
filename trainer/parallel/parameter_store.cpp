#include "trainer/parallel/parameter_store.h"

#include <algorithm>
#include <utility>

namespace atl::parallel {
namespace {

using tensor::Category;
using tensor::DType;
using Part = OptimizerState::Part;

Part part_of(ParameterStore::Saved saved) {
    if (saved == ParameterStore::Saved::kExactWeights) return Part::kMasters;
    return saved == ParameterStore::Saved::kFirstMoment ? Part::kFirstMoment : Part::kSecondMoment;
}

}  // namespace

ParameterStore ParameterStore::lay_out(Arena& arena, const model::Model& model, const Division& division,
                                       const optim::Optimizer* optimizer, bool offload_optimizer) {
    ParameterStore store;
    store.model_ = &model;
    store.division_ = division;
    store.cuts_ = cut_groups(model, division);
    const auto length = [](const GroupCut& cut, bool sharded) { return sharded ? cut.shard : cut.whole; };
    OptimizerState::Layout state;
    state.offloaded = offload_optimizer;
    std::int64_t elements = 0;
    for (std::size_t group = 0; group < store.cuts_.size(); ++group) {
        const GroupCut& cut = store.cuts_[group];
        store.first_elements_.push_back(elements);
        elements += cut.element_count;
        store.weights_.push_back(
            arena.allocate(model.groups[group].is_quantized() ? Category::kQuantized : Category::kWeights,
                           store.storage(group), {length(cut, shards_weights(division.sharding))}));
        if (optimizer == nullptr) continue;
        const bool trains = store.trains(group);
        store.gradients_.push_back(trains ? arena.allocate(Category::kGradients, DType::kF32,
                                                           {length(cut, shards_gradients(division.sharding))})
                                          : Tensor());
        state.counts.push_back(trains ? store.update_range(group).count : 0);
        state.has_masters.push_back(store.storage(group) == DType::kF32 ? 0 : 1);
        store.runs_.push_back(store.find_runs(group));
    }
    if (optimizer == nullptr) return store;
    state.moment_count = optimizer->moment_count();
    state.moments_dtype = optimizer->moments_dtype;
    store.state_ = OptimizerState::lay_out(arena, std::move(state));
    return store;
}

std::vector<ParameterStore::Run> ParameterStore::find_runs(std::size_t group) const {
    const model::ParameterGroup& parameters = model_->groups[group];
    const Range range = update_range(group);
    std::vector<Run> runs;
    for (const Piece& piece : pieces_of(parameters, range.begin, range.count)) {
        const bool is_norm = parameters.parameters[piece.parameter].is_norm;
        if (runs.empty() || runs.back().is_norm != is_norm) runs.push_back({piece.at, 0, is_norm});
        runs.back().count += piece.count;
    }
    return runs;
}

ParameterStore::Range ParameterStore::update_range(std::size_t group) const {
    const GroupCut& cut = cuts_[group];
    return shards_moments(sharding()) ? Range{cut.begin, cut.shard} : Range{0, cut.whole};
}

ParameterStore::Range ParameterStore::range_of(Saved saved, std::size_t group) const {
    if (saved != Saved::kExactWeights || has_masters(group)) return update_range(group);
    return {begin_of(weights_[group], group), weights_[group].element_count()};
}

DType ParameterStore::dtype_of(Saved saved, std::size_t group) const {
    if (saved == Saved::kExactWeights && !has_masters(group)) return storage(group);
    return state_.dtype(part_of(saved));
}

Status ParameterStore::read(kernels::Backend& backend, Saved saved, std::size_t group, std::int64_t at,
                            std::span<std::byte> to) {
    if (saved != Saved::kExactWeights || has_masters(group)) {
        return state_.read(backend, part_of(saved), group, at, to);
    }
    const auto count = static_cast<std::int64_t>(to.size()) / tensor::size_bytes(storage(group));
    backend.copy_to_host(flat_range(weights_[group], at, count), to.data());
    return {};
}

Status ParameterStore::write(kernels::Backend& backend, Saved saved, std::size_t group, std::int64_t at,
                             std::span<const std::byte> from) {
    if (saved != Saved::kExactWeights || has_masters(group)) {
        return state_.write(backend, part_of(saved), group, at, from);
    }
    const auto count = static_cast<std::int64_t>(from.size()) / tensor::size_bytes(storage(group));
    backend.copy_from_host(from.data(), flat_range(weights_[group], at, count));
    return {};
}

Tensor ParameterStore::shard_of(const Tensor& tensor, const GroupCut& cut) {
    return tensor.element_count() == cut.shard ? tensor : flat_range(tensor, cut.begin, cut.shard);
}

Tensor ParameterStore::own_gradients(std::size_t group) const {
    const std::int64_t count = cuts_[group].shard / division_.copies();
    return flat_range(gradient_shard(group), count * division_.copy(), count);
}

void ParameterStore::clear_weights(kernels::Backend& backend) const {
    for (const Tensor& weights : weights_) backend.zero(weights);
    state_.clear(backend, Part::kMasters);
}

void ParameterStore::clear_moments(kernels::Backend& backend) const {
    state_.clear(backend, Part::kFirstMoment);
    state_.clear(backend, Part::kSecondMoment);
}

Status ParameterStore::update(kernels::Backend& backend, comm::Comm& comm, const optim::Optimizer& optimizer,
                              const Update& update) {
    for (std::size_t group = 0; group < cuts_.size(); ++group) {
        if (!trains(group)) continue;
        state_.update(backend, group, [&](const OptimizerState::Piece& piece) {
            update_piece(backend, optimizer, update, group, piece);
        });
        if (shards_moments(sharding()) && !shards_weights(sharding())) {
            backend.synchronize();
            comm.all_gather(weight_shard(group).bytes(), weights(group).bytes());
        }
    }
    return state_.end_update(backend);
}

void ParameterStore::update_piece(kernels::Backend& backend, const optim::Optimizer& optimizer, const Update& update,
                                  std::size_t group, const OptimizerState::Piece& piece) const {
    const bool sharded = shards_moments(sharding());
    const Tensor kept = sharded ? weight_shard(group) : weights_[group];
    const Tensor gradients = sharded ? gradient_shard(group) : gradients_[group];
    const std::int64_t first_element = first_elements_[group] + update_range(group).begin;
    for (const Run& run : runs_[group]) {
        const std::int64_t begin = std::max(run.begin, piece.begin);
        const std::int64_t count = std::min(run.begin + run.count, piece.begin + piece.count) - begin;
        if (count <= 0) continue;
        const auto part = [&](const Tensor& flat) { return flat_range(flat, begin, count); };
        const auto state = [&](Part which) {
            return piece[which].empty() ? Tensor() : flat_range(piece[which], begin - piece.begin, count);
        };
        const Tensor masters = state(Part::kMasters);
        optimizer.update(backend, update.step, update.learning_rate, update.gradient_scale,
                         update.decay_norms || !run.is_norm,
                         {.weights = masters.empty() ? part(kept) : masters,
                          .gradients = part(gradients),
                          .first_moments = state(Part::kFirstMoment),
                          .second_moments = state(Part::kSecondMoment),
                          .stored = masters.empty() ? Tensor() : part(kept),
                          .seed = update.seed,
                          .first_element = first_element + begin});
    }
}

}  // namespace atl::parallel
