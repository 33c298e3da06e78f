#include "trainer/parallel/gradient_reduce.h"

#include <algorithm>
#include <span>

namespace atl::parallel {
namespace {

using tensor::Category;
using tensor::DType;

// For each group, whether more than one block uses it.
std::vector<char> shared_groups(const model::Model& model) {
    std::vector<char> uses(model.groups.size(), 0);
    for (const auto& block : model.blocks) {
        for (const std::size_t group : block->groups()) ++uses[group];
    }
    for (char& use : uses) use = use > 1 ? 1 : 0;
    return uses;
}

// The part of a shard that one of the ranks that keep it adds up.
std::span<float> part_of(const comm::Comm& replicas, const Tensor& shard) {
    const std::int64_t count = shard.element_count() / replicas.size();
    return elements(flat_range(shard, count * replicas.rank(), count));
}

}  // namespace

CopyReduce CopyReduce::lay_out(Arena& arena, const ParameterStore& store) {
    CopyReduce reduce;
    if (store.division().copies() == 1) return reduce;
    std::int64_t largest = 0;
    for (std::size_t group = 0; group < store.group_count(); ++group) {
        if (store.trains(group)) largest = std::max(largest, store.cut(group).shard);
    }
    reduce.scratch_ = arena.allocate(Category::kWorkspace, DType::kF32, {largest});
    return reduce;
}

void CopyReduce::add(comm::Comm& replicas, const Tensor& shard) {
    begin_gather(replicas);
    reducing_ = shard;
    reduce_ = replicas.start_reduce_scatter(elements(shard), part_of(replicas, shard),
                                            elements(flat_range(scratch_, 0, shard.element_count())));
}

void CopyReduce::begin_gather(comm::Comm& replicas) {
    if (reducing_.empty()) return;
    replicas.wait(reduce_);
    replicas.wait(gather_);
    gather_ = replicas.start_all_gather(std::as_bytes(part_of(replicas, reducing_)),
                                        std::as_writable_bytes(elements(reducing_)));
    reducing_ = Tensor();
}

void CopyReduce::finish(comm::Comm& replicas) {
    begin_gather(replicas);
    replicas.wait(gather_);
    gather_ = {};
}

GradientReduce GradientReduce::lay_out(Arena& arena, const ParameterStore& store, const Options& options) {
    GradientReduce reduce;
    reduce.store_ = &store;
    reduce.options_ = options;
    reduce.first_block_ = store.model().first_block_of_group();
    reduce.holds_.assign(store.group_count(), 0);
    reduce.reduced_.assign(store.group_count(), 0);
    const std::vector<char> shared = shared_groups(store.model());
    for (std::size_t group = 0; group < store.group_count(); ++group) {
        const bool sharded = shards_gradients(store.sharding());
        if (!sharded) reduce.own_.push_back(store.gradients(group));
        const bool passes = shared[group] == 0 || !store.trains(group);
        if (sharded && passes) reduce.own_.emplace_back();
        if (sharded && !passes) {
            reduce.own_.push_back(arena.allocate(Category::kGradients, DType::kF32, {store.cut(group).whole}));
        }
    }
    reduce.has_own_ = shards_gradients(store.sharding()) ? shared : std::vector<char>(store.group_count(), 1);
    if (store.division().ranks > 1) reduce.lay_out_lanes(arena);
    if (reduce.by_rows()) {
        reduce.rows_ = RowTree::lay_out(arena, store, options.fixed_tree_rows);
    } else {
        reduce.copies_ = CopyReduce::lay_out(arena, store);
    }
    return reduce;
}

void GradientReduce::lay_out_lanes(Arena& arena) {
    std::int64_t passing = 0;
    std::int64_t scratch = 0;
    std::int64_t landing = 0;
    const auto& blocks = store_->model().blocks;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
        std::int64_t block_passing = 0;
        std::int64_t block_scratch = 0;
        for (const std::size_t group : blocks[block]->groups()) {
            if (!store_->trains(group)) continue;
            if (has_own_[group] == 0) block_passing += store_->cut(group).whole;
            if (completes(group, block)) block_scratch += store_->cut(group).whole;
        }
        passing = std::max(passing, block_passing);
        scratch = std::max(scratch, block_scratch);
    }
    const bool adds = options_.accumulation > 1 && !by_rows();
    if (shards_gradients(store_->sharding()) && adds) landing = scratch / shard_ranks();
    for (Lane& lane : lanes_) {
        if (passing > 0) lane.passing = arena.allocate(Category::kGradients, DType::kF32, {passing});
        lane.scratch = arena.allocate(Category::kWorkspace, DType::kF32, {scratch});
        if (landing > 0) lane.landing = arena.allocate(Category::kWorkspace, DType::kF32, {landing});
        lane.reductions.reserve(store_->group_count());
    }
}

const std::vector<GradientReduce::Lent>& GradientReduce::lend(kernels::Backend& backend, RankGroups& ranks,
                                                              std::size_t block) {
    lane_ = 1 - lane_;
    Lane& lane = lanes_[lane_];
    complete(backend, ranks, lane);
    complete_own_buffers(backend, ranks, block);
    lent_.clear();
    std::int64_t at = 0;
    for (const std::size_t group : store_->model().blocks[block]->groups()) {
        const GroupCut& cut = store_->cut(group);
        Lent lent{own_[group], holds_[group] != 0};
        if (!store_->trains(group)) {
            lent_.emplace_back();
            continue;
        }
        if (has_own_[group] == 0) {
            lent.whole = flat_range(lane.passing, at, cut.whole);
            at += cut.whole;
        }
        const std::int64_t padding = cut.whole - cut.element_count;
        if (!lent.accumulate && padding > 0) backend.zero(flat_range(lent.whole, cut.element_count, padding));
        holds_[group] = has_own_[group];
        lent_.push_back(lent);
    }
    return lent_;
}

// A group's own buffer may still be on its way from the micro-step before (a tied embedding is its last and the next's
// first).
void GradientReduce::complete_own_buffers(kernels::Backend& backend, RankGroups& ranks, std::size_t block) {
    Lane& other = lanes_[1 - lane_];
    for (const std::size_t group : store_->model().blocks[block]->groups()) {
        if (std::ranges::find(other.reductions, group, &Reduction::group) == other.reductions.end()) continue;
        complete(backend, ranks, other);
        return;
    }
}

void GradientReduce::block_done(kernels::Backend& backend, RankGroups& ranks, std::size_t block, bool last) {
    const auto& groups = store_->model().blocks[block]->groups();
    const bool now = last || by_rows() || shards_gradients(store_->sharding());
    std::int64_t scratch_at = 0;
    if (now) backend.synchronize();
    for (std::size_t i = 0; now && i < groups.size(); ++i) {
        const std::size_t group = groups[i];
        if (!completes(group, block) || !store_->trains(group)) continue;
        holds_[group] = 0;
        if (by_rows() && store_->division().ranks == 1) {
            rows_.add(backend, group, lent_[i].whole, store_->gradients(group));
        } else if (store_->division().ranks > 1) {
            start(ranks, lanes_[lane_], {{}, group, {}, last}, lent_[i].whole, scratch_at);
        }
        scratch_at += store_->cut(group).whole;
    }
}

void GradientReduce::start(RankGroups& ranks, Lane& lane, Reduction reduction, const Tensor& whole,
                           std::int64_t scratch_at) {
    const std::size_t group = reduction.group;
    const GroupCut& cut = store_->cut(group);
    const Tensor scratch = flat_range(lane.scratch, scratch_at, cut.whole);
    if (by_rows()) {
        reduction.landing = scratch;
        reduction.transfer = ranks.by_shard().start_all_to_all(elements(whole), elements(scratch));
        lane.reductions.push_back(reduction);
        return;
    }
    if (reduced_[group] != 0) reduction.landing = flat_range(lane.landing, scratch_at / shard_ranks(), cut.shard);
    const Tensor target = reduced_[group] != 0 ? reduction.landing : store_->gradient_shard(group);
    reduction.transfer = ranks.copy().start_reduce_scatter(elements(whole), elements(target), elements(scratch));
    reduced_[group] = 1;
    lane.reductions.push_back(reduction);
}

void GradientReduce::complete(kernels::Backend& backend, RankGroups& ranks, Lane& lane) {
    for (const Reduction& reduction : lane.reductions) {
        if (by_rows()) {
            add_rows(backend, ranks, reduction);
        } else {
            add_to_shard(backend, ranks, reduction);
        }
    }
    lane.reductions.clear();
}

void GradientReduce::add_to_shard(kernels::Backend& backend, RankGroups& ranks, const Reduction& reduction) {
    ranks.copy().wait(reduction.transfer);
    const Tensor shard = store_->gradient_shard(reduction.group);
    if (!reduction.landing.empty()) backend.add(shard, reduction.landing, shard);
    if (!reduction.last || ranks.replicas() == nullptr) return;
    backend.synchronize();
    copies_.add(*ranks.replicas(), shard);
}

void GradientReduce::add_rows(kernels::Backend& backend, RankGroups& ranks, const Reduction& reduction) {
    ranks.by_shard().wait(reduction.transfer);
    const Division& division = store_->division();
    const Tensor own = store_->own_gradients(reduction.group);
    const std::int64_t count = own.element_count();
    for (int rank = 0; rank < division.ranks; ++rank) {
        rows_.add(backend, reduction.group, flat_range(reduction.landing, division.place(rank) * count, count), own);
    }
    if (!reduction.last || ranks.replicas() == nullptr) return;
    backend.synchronize();
    ranks.replicas()->all_gather(std::as_bytes(elements(own)),
                                 std::as_writable_bytes(elements(store_->gradient_shard(reduction.group))));
}

void GradientReduce::finish(kernels::Backend& backend, RankGroups& ranks) {
    complete(backend, ranks, lanes_[1 - lane_]);  // the older one first: all ranks wait in the order they began
    complete(backend, ranks, lanes_[lane_]);
    if (ranks.replicas() != nullptr && !by_rows()) copies_.finish(*ranks.replicas());
    backend.synchronize();
    std::ranges::fill(reduced_, 0);
}

void GradientReduce::share(RankGroups& ranks) const {
    if (store_->division().ranks == 1 || shards_moments(store_->sharding())) return;
    for (std::size_t group = 0; group < store_->group_count(); ++group) {
        if (!store_->trains(group)) continue;
        ranks.world().all_gather(std::as_bytes(elements(store_->gradient_shard(group))),
                                 std::as_writable_bytes(elements(store_->gradients(group))));
    }
}

}  // namespace atl::parallel
