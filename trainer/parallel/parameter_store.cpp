#include "trainer/parallel/parameter_store.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "trainer/trace/trace.h"

namespace atl::parallel {
namespace {

using tensor::Category;
using tensor::DType;
using Part = OptimizerState::Part;

Part optimizer_part(ParameterStore::Saved saved) {
    if (saved == ParameterStore::Saved::kExactWeights) return Part::kMasters;
    return saved == ParameterStore::Saved::kFirstMoment ? Part::kFirstMoment : Part::kSecondMoment;
}

}  // namespace

ParameterStore ParameterStore::lay_out(Arena& arena, const model::Model& model, const ParallelLayout& layout,
                                       const optim::Optimizer* optimizer, const Offload& offload) {
    ParameterStore store;
    store.model_ = &model;
    store.layout_ = layout;
    store.specs_ = shard_specs(model, layout);
    store.weights_space_ = offload.weights ? kernels::Space::kPinned : kernels::Space::kDevice;
    Arena& of_weights = offload.weights ? *offload.pinned : arena;
    Arena& of_optimizer = offload.optimizer != run_settings::Offload::kNone ? *offload.pinned : arena;
    const auto length = [](const ShardSpec& spec, bool sharded) { return sharded ? spec.shard : spec.whole; };
    OptimizerState::Layout state;
    state.in_file = offload.optimizer == run_settings::Offload::kNvme;
    if (optimizer != nullptr && optimizer->kind == optim::OptimizerKind::kMuon) {
        check(!state.in_file, "Muon's momenta are not offloaded to a file");
        store.muon_ = MuonDirections::lay_out({arena, *offload.pinned, *offload.library}, model, layout,
                                              shards_moments(layout.sharding));
    }
    std::int64_t elements = 0;
    for (std::size_t unit = 0; unit < store.specs_.size(); ++unit) {
        const ShardSpec& spec = store.specs_[unit];
        store.first_elements_.push_back(elements);
        elements += spec.element_count;
        store.weights_.push_back(
            of_weights.allocate(model.units[unit].is_quantized() ? Category::kQuantized : Category::kWeights,
                                store.storage(unit), {length(spec, shards_weights(layout.sharding))}));
        if (optimizer == nullptr) continue;
        const bool trains = store.trains(unit);
        store.gradients_.push_back(trains ? arena.allocate(Category::kGradients, model.formats.accumulated,
                                                           {length(spec, shards_gradients(layout.sharding))})
                                          : Tensor());
        state.counts.push_back(trains ? store.update_range(unit).count : 0);
        state.has_masters.push_back(model.formats.masters.value_or(store.storage(unit)) != store.storage(unit) ? 1 : 0);
        store.runs_.push_back(store.find_runs(unit));
    }
    if (optimizer == nullptr) return store;
    state.moment_count = optimizer->moment_count();
    state.masters_dtype = model.formats.masters.value_or(DType::kF32);
    state.moments_dtype = model.formats.moments;
    store.state_ = OptimizerState::lay_out(of_optimizer, std::move(state));
    if (store.gathers_new_weights()) store.lay_out_update(offload);
    return store;
}

void ParameterStore::lay_out_update(const Offload& offload) {
    std::int64_t bytes = 0;
    for (std::size_t unit = 0; unit < specs_.size(); ++unit) {
        if (!trains(unit)) continue;
        bytes = std::max(bytes, offload.library->gather_bytes(layout_.shard_ranks(),
                                                              tensor::size_bytes(storage(unit), specs_[unit].shard),
                                                              {.shard = weights_space_, .whole = weights_space_}));
    }
    if (bytes > 0) update_pinned_ = offload.pinned->allocate(Category::kGather, DType::kU8, {bytes});
}

ParameterStore::Treatment ParameterStore::treat(const model::FsdpUnit& unit, const model::Parameter& parameter) const {
    Treatment treatment{.is_norm = parameter.is_norm};
    treatment.by_muon = muon_ && is_driven_by_muon(unit, parameter);
    treatment.has_embedding_rate = muon_ ? !treatment.by_muon : !unit.is_layer && parameter.shape.size() == 2;
    return treatment;
}

std::vector<ParameterStore::Run> ParameterStore::find_runs(std::size_t unit) const {
    const model::FsdpUnit& parameters = model_->units[unit];
    const Range range = update_range(unit);
    std::vector<Run> runs;
    for (const Piece& piece : split_by_parameter(parameters, range.begin, range.count)) {
        const Treatment treatment = treat(parameters, parameters.parameters[piece.parameter]);
        if (runs.empty() || runs.back().treatment != treatment) runs.push_back({piece.at, 0, treatment});
        runs.back().count += piece.count;
    }
    return runs;
}

ParameterStore::Range ParameterStore::update_range(std::size_t unit) const {
    const ShardSpec& spec = specs_[unit];
    return shards_moments(sharding()) ? Range{spec.begin, spec.shard} : Range{0, spec.whole};
}

ParameterStore::Range ParameterStore::saved_range(Saved saved, std::size_t unit) const {
    if (saved == Saved::kGradientSum) return {specs_[unit].begin, specs_[unit].shard};
    if (saved != Saved::kExactWeights || has_masters(unit)) return update_range(unit);
    return {kept_begin(weights_[unit], unit), weights_[unit].element_count()};
}

ParameterStore::Range ParameterStore::own_range(std::size_t unit) const {
    const std::int64_t count = specs_[unit].shard / layout_.replicas();
    return {specs_[unit].begin + count * layout_.replica(), count};
}

std::int64_t ParameterStore::own_state_bytes() const {
    std::int64_t bytes = 0;
    for (std::size_t unit = 0; unit < specs_.size(); ++unit) {
        if (!trains(unit)) continue;
        const Range own = own_range(unit);
        const std::int64_t count = std::clamp<std::int64_t>(specs_[unit].element_count - own.begin, 0, own.count);
        for (int kind = 0; kind <= moment_count(); ++kind)
            bytes += tensor::size_bytes(saved_dtype(static_cast<Saved>(kind), unit), count);
        if (has_gradient_sums()) bytes += tensor::size_bytes(saved_dtype(Saved::kGradientSum, unit), count);
    }
    return bytes;
}

DType ParameterStore::saved_dtype(Saved saved, std::size_t unit) const {
    if (saved == Saved::kGradientSum) return model_->formats.accumulated;
    if (saved == Saved::kExactWeights && !has_masters(unit)) return storage(unit);
    return state_.dtype(optimizer_part(saved));
}

Status ParameterStore::read(kernels::Backend& backend, Saved saved, std::size_t unit, std::int64_t at,
                            std::span<std::byte> to) {
    const Tensor own = saved_tensor(saved, unit);
    if (own.empty()) return state_.read(backend, optimizer_part(saved), unit, at, to);
    const auto count = static_cast<std::int64_t>(to.size()) / tensor::size_bytes(own.dtype());
    backend.copy_to_host(flat_range(own, at, count), to.data());
    return {};
}

Status ParameterStore::write(kernels::Backend& backend, Saved saved, std::size_t unit, std::int64_t at,
                             std::span<const std::byte> from) {
    const Tensor own = saved_tensor(saved, unit);
    if (own.empty()) return state_.write(backend, optimizer_part(saved), unit, at, from);
    const auto count = static_cast<std::int64_t>(from.size()) / tensor::size_bytes(own.dtype());
    backend.copy_from_host(from.data(), flat_range(own, at, count));
    return {};
}

Tensor ParameterStore::saved_tensor(Saved saved, std::size_t unit) const {
    if (saved == Saved::kGradientSum) return gradient_sums_[unit];
    return saved == Saved::kExactWeights && !has_masters(unit) ? weights_[unit] : Tensor();
}

void ParameterStore::lay_out_gradient_sums(Arena& arena) {
    const DType format = model_->formats.accumulated;
    for (std::size_t unit = 0; unit < specs_.size(); ++unit)
        gradient_sums_.push_back(trains(unit) ? arena.allocate(Category::kControlVariate, format, {specs_[unit].shard})
                                              : Tensor());
}

Tensor ParameterStore::shard_of(const Tensor& tensor, const ShardSpec& spec) {
    return tensor.element_count() == spec.shard ? tensor : flat_range(tensor, spec.begin, spec.shard);
}

Tensor ParameterStore::exact_weight_shard(std::size_t unit) const {
    const Tensor exact = has_masters(unit) ? state_.in_memory(Part::kMasters, unit) : weights_[unit];
    return exact.empty() ? exact : shard_of(exact, specs_[unit]);
}

Tensor ParameterStore::own_gradients(std::size_t unit) const {
    const std::int64_t count = specs_[unit].shard / layout_.replicas();
    return flat_range(gradient_shard(unit), count * layout_.replica(), count);
}

void ParameterStore::clear_weights(kernels::Backend& backend) const {
    for (const Tensor& weights : weights_) backend.zero(weights);
    state_.clear(backend, Part::kMasters);
}

void ParameterStore::clear_moments(kernels::Backend& backend) const {
    state_.clear(backend, Part::kFirstMoment);
    state_.clear(backend, Part::kSecondMoment);
}

Status ParameterStore::update(kernels::Backend& backend, Collectives& ranks, const optim::Optimizer& optimizer,
                              const Update& update) {
    Ranges ranges;
    const auto update_ranges = [&](std::string_view name) {
        const trace::StreamSpan of_device(kernels::Stream::kCompute, "optimizer", name);
        if (!ranges.usual.empty()) optimizer.update(backend, update.scalars, update.learning_rate, ranges.usual);
        if (!ranges.with_embedding_rate.empty())
            optimizer.update(backend, update.scalars, update.embedding_rate, ranges.with_embedding_rate);
        ranges = {};
    };
    for (std::size_t unit = 0; unit < specs_.size(); ++unit) {
        if (!trains(unit)) continue;
        const std::string& name = model_->units[unit].name;
        state_.update(backend, unit, [&](const OptimizerState::Piece& piece) {
            append_ranges(update, unit, piece, ranges);
            if (state_.is_in_file()) update_ranges(name);  // it is in memory until the next one is shown
        });
        if (muon_ && muon_->drives(unit)) update_by_muon(backend, ranks, optimizer, update, unit, ranges.by_muon);
        if (!gathers_new_weights()) continue;
        update_ranges(name);
        const trace::Span span("wait for weights", name);
        const trace::StreamSpan of_device(kernels::Stream::kCompute, "wait for weights", name);
        ranks.all_gather(weight_shard(unit), weights(unit), {.shard = weights_space_, .whole = weights_space_},
                         update_pinned_, {"the new weights", name});
    }
    update_ranges({});
    return state_.end_update(backend);
}

void ParameterStore::update_by_muon(kernels::Backend& backend, Collectives& ranks, const optim::Optimizer& optimizer,
                                    const Update& update, std::size_t unit,
                                    std::vector<kernels::OptimizerRange>& ranges) const {
    const trace::StreamSpan of_device(kernels::Stream::kCompute, "muon", model_->units[unit].name);
    const Tensor own = muon_->own(unit);
    const std::int64_t first_element = first_elements_[unit] + update_range(unit).begin;
    const auto direction = [&](const kernels::OptimizerRange& range) {
        return flat_range(own, range.first_element - first_element, range.weights.element_count());
    };
    std::vector<kernels::OptimizerRange> momenta = ranges;
    for (kernels::OptimizerRange& range : momenta) {
        range.weights = direction(range);
        range.second_moments = range.stored = {};
    }
    backend.nesterov(static_cast<float>(optimizer.momentum), update.scalars, momenta);
    muon_->orthogonalize(backend, ranks, unit);
    for (kernels::OptimizerRange& range : ranges) {
        range.gradients = direction(range);
        range.first_moments = range.second_moments = {};
    }
    const auto f = [](double value) { return static_cast<float>(value); };
    backend.sgd({.learning_rate = f(update.learning_rate),
                 .momentum = 0,
                 .weight_decay = f(optimizer.weight_decay),
                 .uses_factor = false},
                update.scalars, ranges);
    ranges.clear();
}

void ParameterStore::append_ranges(const Update& update, std::size_t unit, const OptimizerState::Piece& piece,
                                   Ranges& ranges) const {
    const bool sharded = shards_moments(sharding());
    const Tensor kept = sharded ? weight_shard(unit) : weights_[unit];
    const Tensor gradients = sharded ? gradient_shard(unit) : gradients_[unit];
    const std::int64_t first_element = first_elements_[unit] + update_range(unit).begin;
    for (const Run& run : runs_[unit]) {
        const std::int64_t begin = std::max(run.begin, piece.begin);
        const std::int64_t count = std::min(run.begin + run.count, piece.begin + piece.count) - begin;
        if (count <= 0) continue;
        const auto part = [&](const Tensor& flat) { return flat_range(flat, begin, count); };
        const auto state = [&](Part which) {
            return piece[which].empty() ? Tensor() : flat_range(piece[which], begin - piece.begin, count);
        };
        const Tensor masters = state(Part::kMasters);
        auto& alike = run.treatment.by_muon              ? ranges.by_muon
                      : run.treatment.has_embedding_rate ? ranges.with_embedding_rate
                                                         : ranges.usual;
        alike.push_back({.weights = masters.empty() ? part(kept) : masters,
                         .gradients = part(gradients),
                         .first_moments = state(Part::kFirstMoment),
                         .second_moments = state(Part::kSecondMoment),
                         .stored = masters.empty() ? Tensor() : part(kept),
                         .seed = update.seed,
                         .first_element = first_element + begin,
                         .decays = update.decay_norms || !run.treatment.is_norm});
    }
}

}  // namespace atl::parallel
