#include "trainer/parallel/gradient_reduce.h"

#include <algorithm>
#include <utility>

#include "trainer/trace/trace.h"

namespace atl::parallel {
namespace {

using tensor::Category;

// For each unit, whether more than one block uses it.
std::vector<char> find_shared_units(const model::Model& model) {
    std::vector<char> uses(model.units.size(), 0);
    for (const auto& block : model.blocks) {
        for (const std::size_t unit : block->units()) ++uses[unit];
    }
    for (char& use : uses) use = use > 1 ? 1 : 0;
    return uses;
}

std::int64_t largest_shard(const ParameterStore& store) {
    std::int64_t largest = 0;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        if (store.trains(unit)) largest = std::max(largest, store.shard_spec(unit).shard);
    }
    return largest;
}

Tensor allocate_pinned(const Arenas& arenas, std::int64_t bytes) {
    return bytes == 0 ? Tensor() : arenas.pinned.allocate(Category::kWorkspace, tensor::DType::kU8, {bytes});
}

// The part of a shard that one of the ranks that keep it adds up.
Tensor replica_part(const Collectives& replicas, const Tensor& shard) {
    const std::int64_t count = shard.element_count() / replicas.size();
    return flat_range(shard, count * replicas.rank(), count);
}

}  // namespace

ReplicaReduce ReplicaReduce::lay_out(const Arenas& arenas, const ParameterStore& store, std::int64_t elements_max) {
    ReplicaReduce reduce;
    const int replicas = store.layout().replicas();
    if (replicas == 1) return reduce;
    const std::int64_t largest = largest_shard(store);
    const kernels::Formats& formats = store.model().formats;
    const ExchangeLibrary::ReduceNeed need =
        arenas.library.reduce_need({replicas, largest, formats.accumulated, formats.reduced, elements_max});
    if (need.scratch > 0)
        reduce.memory_.scratch = arenas.device.allocate(Category::kWorkspace, formats.reduced, {need.scratch});
    reduce.memory_.pinned = allocate_pinned(arenas, need.pinned_bytes);
    reduce.gather_pinned_ = allocate_pinned(
        arenas, arenas.library.gather_bytes(replicas, tensor::size_bytes(formats.accumulated, largest / replicas), {}));
    return reduce;
}

void ReplicaReduce::add(Collectives& replicas, const Tensor& shard, const comm::Awaited& awaited) {
    begin_gather(replicas);
    reducing_ = shard;
    awaited_ = awaited;
    reduce_ = replicas.start_reduce_scatter(shard, replica_part(replicas, shard), memory_, awaited_);
}

void ReplicaReduce::begin_gather(Collectives& replicas) {
    if (reducing_.empty()) return;
    const trace::Span span("wait for replicas");
    const trace::StreamSpan of_device(kernels::Stream::kCompute, "wait for replicas");
    replicas.wait(reduce_);
    replicas.wait(gather_);
    gather_ = replicas.start_all_gather(replica_part(replicas, reducing_), reducing_, {}, gather_pinned_, awaited_);
    reducing_ = Tensor();
}

void ReplicaReduce::finish(Collectives& replicas) {
    begin_gather(replicas);
    const trace::Span span("wait for replicas");
    const trace::StreamSpan of_device(kernels::Stream::kCompute, "wait for replicas");
    replicas.wait(gather_);
    gather_ = {};
}

GradientReduce GradientReduce::lay_out(const Arenas& arenas, const ParameterStore& store, const Options& options) {
    GradientReduce reduce;
    reduce.store_ = &store;
    reduce.options_ = options;
    reduce.first_block_ = store.model().first_block_of_unit();
    reduce.accumulates_.assign(store.unit_count(), 0);
    reduce.reduced_.assign(store.unit_count(), 0);
    const std::vector<char> shared = find_shared_units(store.model());
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        if (!shards_gradients(store.sharding())) {
            reduce.unit_buffers_.push_back(store.gradients(unit));
        } else if (shared[unit] != 0 && store.trains(unit)) {
            const std::int64_t whole = store.shard_spec(unit).whole;
            reduce.unit_buffers_.push_back(
                arenas.device.allocate(Category::kGradients, store.model().formats.accumulated, {whole}));
        } else {
            reduce.unit_buffers_.emplace_back();
        }
    }
    if (store.layout().ranks() > 1) {
        reduce.lay_out_buckets(arenas);
        reduce.lay_out_gathers(arenas);
    }
    if (reduce.uses_fixed_tree()) {
        reduce.pairwise_sum_ = PairwiseSum::lay_out(arenas.device, store, options.fixed_tree_sequences);
    } else {
        reduce.replica_reduce_ = ReplicaReduce::lay_out(arenas, store, options.elements_max);
    }
    return reduce;
}

// Of sequences all arrive as they are, and at once.
ExchangeLibrary::ReduceNeed GradientReduce::find_need(const ExchangeLibrary& library, std::size_t unit) const {
    const kernels::Formats& formats = store_->model().formats;
    const std::int64_t whole = store_->shard_spec(unit).whole;
    if (!uses_fixed_tree())
        return library.reduce_need(
            {shard_ranks(), whole, unsharded_format(unit), formats.reduced, options_.elements_max});
    const std::int64_t bytes = tensor::size_bytes(unsharded_format(unit), whole);
    return {.scratch = whole, .pinned_bytes = library.all_to_all_bytes(store_->layout().ranks(), bytes)};
}

void GradientReduce::lay_out_gathers(const Arenas& arenas) {
    const ParallelLayout& layout = store_->layout();
    const bool gathers_sums = uses_fixed_tree() && layout.replicas() > 1;
    if (!gathers_sums && shards_moments(store_->sharding())) return;
    const int ranks = gathers_sums ? layout.replicas() : layout.ranks();
    const std::int64_t sent = gathers_sums ? largest_shard(*store_) / ranks : largest_shard(*store_);
    const std::int64_t bytes = tensor::size_bytes(store_->model().formats.accumulated, sent);
    gather_pinned_ = allocate_pinned(arenas, arenas.library.gather_bytes(ranks, bytes, {}));
}

void GradientReduce::lay_out_buckets(const Arenas& arenas) {
    const auto& blocks = store_->model().blocks;
    std::vector<std::int64_t> unsharded(blocks.size()), scratch(blocks.size()), pinned(blocks.size()),
        receive(blocks.size());
    for (std::size_t unit = 0; unit < store_->unit_count(); ++unit) needs_.push_back(find_need(arenas.library, unit));
    const bool adds = options_.accumulation > 1 && !uses_fixed_tree() && shards_gradients(store_->sharding());
    for (std::size_t block = 0; block < blocks.size(); ++block) {
        std::int64_t reduced = 0;
        for (const std::size_t unit : blocks[block]->units()) {
            if (!store_->trains(unit)) continue;
            if (!has_buffer(unit)) unsharded[block] += store_->shard_spec(unit).whole;
            if (!completes(unit, block)) continue;
            reduced += store_->shard_spec(unit).whole;
            scratch[block] += needs_[unit].scratch;
            pinned[block] += needs_[unit].pinned_bytes;
        }
        if (adds) receive[block] = reduced / shard_ranks();
    }
    const kernels::Formats& formats = store_->model().formats;
    unsharded_ = TwoEndedBuffer::lay_out(arenas.device, Category::kGradients, formats.gradients, std::move(unsharded));
    scratch_ = TwoEndedBuffer::lay_out(arenas.device, Category::kWorkspace, formats.reduced, std::move(scratch));
    pinned_ = TwoEndedBuffer::lay_out(arenas.pinned, Category::kWorkspace, tensor::DType::kU8, std::move(pinned));
    receive_buffer_ =
        TwoEndedBuffer::lay_out(arenas.device, Category::kWorkspace, formats.accumulated, std::move(receive));
    for (Bucket& bucket : buckets_) bucket.reductions.reserve(store_->unit_count());
}

const std::vector<GradientReduce::UnshardedGradient>& GradientReduce::unsharded_gradients(kernels::Backend& backend,
                                                                                          ProcessGroups& ranks,
                                                                                          std::size_t block) {
    bucket_ = 1 - bucket_;
    Bucket& bucket = buckets_[bucket_];
    complete(backend, ranks, bucket);
    const auto& blocks = store_->model().blocks;
    // A micro-step's first block is no neighbour of the last one of the micro-step before.
    if (block + 1 == blocks.size()) complete(backend, ranks, buckets_[1 - bucket_]);
    if (store_->layout().ranks() > 1) take_room(bucket, block);
    lent_.clear();
    std::int64_t at = 0;
    for (const std::size_t unit : blocks[block]->units()) {
        const ShardSpec& spec = store_->shard_spec(unit);
        UnshardedGradient unsharded{unit_buffers_[unit], accumulates_[unit] != 0};
        if (!store_->trains(unit)) {
            lent_.emplace_back();
            continue;
        }
        if (!has_buffer(unit)) {
            unsharded.whole = flat_range(bucket.unsharded, at, spec.whole);
            at += spec.whole;
        }
        const std::int64_t padding = spec.whole - spec.element_count;
        if (!unsharded.accumulate && padding > 0)
            backend.zero(flat_range(unsharded.whole, spec.element_count, padding));
        accumulates_[unit] = has_buffer(unit) ? 1 : 0;
        lent_.push_back(unsharded);
    }
    return lent_;
}

void GradientReduce::take_room(Bucket& bucket, std::size_t block) const {
    const auto end = bucket_ == 0 ? TwoEndedBuffer::End::kFront : TwoEndedBuffer::End::kBack;
    bucket.unsharded = unsharded_.at(end, block);
    bucket.scratch = scratch_.at(end, block);
    bucket.pinned = pinned_.at(end, block);
    bucket.receive_buffer = receive_buffer_.at(end, block);
}

void GradientReduce::block_done(kernels::Backend& backend, ProcessGroups& ranks, std::size_t block, bool last) {
    const auto& units = store_->model().blocks[block]->units();
    const bool now = last || uses_fixed_tree() || shards_gradients(store_->sharding());
    Room room;
    for (std::size_t i = 0; now && i < units.size(); ++i) {
        const std::size_t unit = units[i];
        if (!completes(unit, block) || !store_->trains(unit)) continue;
        accumulates_[unit] = 0;
        if (uses_fixed_tree() && store_->layout().ranks() == 1) {
            pairwise_sum_.add(backend, unit, lent_[i].whole, store_->gradients(unit));
        } else if (store_->layout().ranks() > 1) {
            start(ranks, buckets_[bucket_], {{}, unit, {}, last}, lent_[i].whole, room);
        }
    }
}

comm::Awaited GradientReduce::gradients_of(std::size_t unit) const {
    return {"the gradients", store_->model().units[unit].name};
}

void GradientReduce::start(ProcessGroups& ranks, Bucket& bucket, Reduction reduction, const Tensor& whole, Room& room) {
    const std::size_t unit = reduction.unit;
    const ShardSpec& spec = store_->shard_spec(unit);
    const Tensor scratch = flat_range(bucket.scratch, room.scratch, needs_[unit].scratch);
    const Tensor pinned = flat_range(bucket.pinned, room.pinned, needs_[unit].pinned_bytes);
    room.scratch += needs_[unit].scratch;
    room.pinned += needs_[unit].pinned_bytes;
    trace::begin_transfer("reduce", store_->model().units[unit].name, unit);
    if (uses_fixed_tree()) {
        reduction.receive_buffer = scratch;
        reduction.transfer = ranks.sharing_by_shard().start_all_to_all(whole, scratch, pinned, gradients_of(unit));
        bucket.reductions.push_back(reduction);
        return;
    }
    if (reduced_[unit] != 0) reduction.receive_buffer = flat_range(bucket.receive_buffer, room.received, spec.shard);
    room.received += spec.shard;
    const Tensor target = reduced_[unit] != 0 ? reduction.receive_buffer : store_->gradient_shard(unit);
    reduction.transfer = ranks.shard_group().start_reduce_scatter(whole, target, {scratch, pinned}, gradients_of(unit));
    reduced_[unit] = 1;
    bucket.reductions.push_back(reduction);
}

void GradientReduce::complete(kernels::Backend& backend, ProcessGroups& ranks, Bucket& bucket) {
    for (const Reduction& reduction : bucket.reductions) {
        if (uses_fixed_tree()) {
            add_sequences(backend, ranks, reduction);
        } else {
            add_to_shard(backend, ranks, reduction);
        }
    }
    bucket.reductions.clear();
}

void GradientReduce::wait(Collectives& ranks, const Reduction& reduction) const {
    const std::string& name = store_->model().units[reduction.unit].name;
    const trace::Span span("wait for reduce", name);
    const trace::StreamSpan of_device(kernels::Stream::kCompute, "wait for reduce", name);
    ranks.wait(reduction.transfer);
    trace::end_transfer("reduce", reduction.unit);
}

void GradientReduce::add_to_shard(kernels::Backend& backend, ProcessGroups& ranks, const Reduction& reduction) {
    wait(ranks.shard_group(), reduction);
    const Tensor shard = store_->gradient_shard(reduction.unit);
    if (!reduction.receive_buffer.empty()) backend.add(shard, reduction.receive_buffer, shard);
    if (!reduction.last || ranks.replicate_group() == nullptr) return;
    replica_reduce_.add(*ranks.replicate_group(), shard, gradients_of(reduction.unit));
}

void GradientReduce::add_sequences(kernels::Backend& backend, ProcessGroups& ranks, const Reduction& reduction) {
    wait(ranks.sharing_by_shard(), reduction);
    const ParallelLayout& layout = store_->layout();
    const Tensor own = store_->own_gradients(reduction.unit);
    const std::int64_t count = own.element_count();
    for (int rank = 0; rank < layout.ranks(); ++rank) {
        pairwise_sum_.add(backend, reduction.unit,
                          flat_range(reduction.receive_buffer, layout.rank_by_shard(rank) * count, count), own);
    }
    if (!reduction.last || ranks.replicate_group() == nullptr) return;
    ranks.replicate_group()->all_gather(own, store_->gradient_shard(reduction.unit), {}, gather_pinned_,
                                        gradients_of(reduction.unit));
}

void GradientReduce::finish(kernels::Backend& backend, ProcessGroups& ranks) {
    complete(backend, ranks, buckets_[1 - bucket_]);  // the older one first: all ranks wait in the order they began
    complete(backend, ranks, buckets_[bucket_]);
    if (ranks.replicate_group() != nullptr && !uses_fixed_tree()) replica_reduce_.finish(*ranks.replicate_group());
    std::ranges::fill(reduced_, 0);
}

void GradientReduce::share(ProcessGroups& ranks) const {
    if (store_->layout().ranks() == 1 || shards_moments(store_->sharding())) return;
    const trace::Span span("share gradients");
    const trace::StreamSpan of_device(kernels::Stream::kCompute, "share gradients");
    for (std::size_t unit = 0; unit < store_->unit_count(); ++unit) {
        if (!store_->trains(unit)) continue;
        ranks.sharing().all_gather(store_->gradient_shard(unit), store_->gradients(unit), {}, gather_pinned_,
                                   gradients_of(unit));
    }
}

}  // namespace atl::parallel
