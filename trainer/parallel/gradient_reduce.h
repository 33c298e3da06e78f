#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/parallel/parameter_store.h"
#include "trainer/parallel/rank_groups.h"
#include "trainer/parallel/row_tree.h"

namespace atl::parallel {

// Adds up the shards that several copies of a model hold, in place, one group's while the next is prepared.
class CopyReduce {
  public:
    static CopyReduce lay_out(Arena& arena, const ParameterStore& store);
    void add(comm::Comm& replicas, const Tensor& shard);
    // Waits for all that was added.
    void finish(comm::Comm& replicas);

  private:
    void begin_gather(comm::Comm& replicas);  // of the sum under way, if there is one

    Tensor scratch_;
    Tensor reducing_;  // the shard under way; empty: none
    comm::Transfer reduce_;
    comm::Transfer gather_;  // of the one before
};

// Lends each block a buffer for its groups' whole gradients and sums them over the ranks once they are complete, while
// the next blocks' backward passes run.
//
// Modes that keep whole gradients add micro-steps up locally and reduce once a step. The others reduce each micro-step
// from one of two passing buffers and add to the shard; a group that two blocks share (a tied embedding) has a buffer
// of its own until its second block is done. In the hybrid modes the shards of the copies are added up after the last
// micro-step.
//
// With a fixed tree every micro-step is one row, of which the ranks have as many neighbouring ones. In every mode each
// rank gets the rows' gradients one by one for the elements that are its alone, and adds them to a RowTree.
class GradientReduce {
  public:
    struct Options {
        std::int64_t accumulation = 1;     // micro-steps a step
        std::int64_t fixed_tree_rows = 0;  // rows a step over all ranks when a fixed tree adds them; 0: by ranks
    };
    static GradientReduce lay_out(Arena& arena, const ParameterStore& store, const Options& options);

    struct Lent {
        Tensor whole;             // [GroupCut::whole], its padding zero; empty: the group is frozen
        bool accumulate = false;  // add to what it holds
    };
    // Before the backward pass of a block: the buffers of its groups, in their order.
    const std::vector<Lent>& lend(kernels::Backend& backend, RankGroups& ranks, std::size_t block);
    // After it. `last` says that this is the step's last micro-step.
    void block_done(kernels::Backend& backend, RankGroups& ranks, std::size_t block, bool last);

    // After the last micro-step: waits, so that every ParameterStore::gradient_shard holds the sum over ranks.
    void finish(kernels::Backend& backend, RankGroups& ranks);
    // After that, where every rank updates all weights and so needs all gradients: exchanges the shards.
    void share(RankGroups& ranks) const;

  private:
    struct Reduction {
        comm::Transfer transfer;
        std::size_t group = 0;
        Tensor landing;     // of the shard of the sum when it must be added to the shard, or of the rows; else empty
        bool last = false;  // of this step
    };
    // What one block has under way; two take turns.
    struct Lane {
        Tensor passing;  // whole gradients of the block's groups that have no buffer of their own
        Tensor scratch;  // of its reductions
        Tensor landing;
        std::vector<Reduction> reductions;
    };
    void lay_out_lanes(Arena& arena);
    bool completes(std::size_t group, std::size_t block) const { return first_block_[group] == block; }
    void start(RankGroups& ranks, Lane& lane, Reduction reduction, const Tensor& whole, std::int64_t scratch_at);
    void complete(kernels::Backend& backend, RankGroups& ranks, Lane& lane);
    void complete_own_buffers(kernels::Backend& backend, RankGroups& ranks, std::size_t block);
    void add_to_shard(kernels::Backend& backend, RankGroups& ranks, const Reduction& reduction);
    void add_rows(kernels::Backend& backend, RankGroups& ranks, const Reduction& reduction);
    bool by_rows() const { return options_.fixed_tree_rows > 0; }
    int shard_ranks() const { return store_->division().shard_ranks; }

    const ParameterStore* store_ = nullptr;
    Options options_;
    std::vector<std::size_t> first_block_;  // of each group
    std::vector<Tensor> own_;               // whole gradients kept from block to block; empty: a passing buffer
    std::vector<char> has_own_;             // by group
    std::vector<char> holds_;               // by group: own_ holds gradients to add to
    std::vector<char> reduced_;             // by group: the shard holds gradients of this step
    std::array<Lane, 2> lanes_;
    std::size_t lane_ = 0;
    CopyReduce copies_;
    RowTree rows_;
    std::vector<Lent> lent_;
};

}  // namespace atl::parallel
