#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/train/parameter_store.h"

namespace atl::train {

// Lends each block a buffer for its groups' whole gradients and sums them over the ranks once they are complete, while
// the next blocks' backward passes run.
//
// Modes that keep whole gradients add micro-steps up locally and reduce once a step. The others reduce each micro-step
// from one of two passing buffers and add to the shard; a group that two blocks share (a tied embedding) has a buffer
// of its own until its second block is done.
class GradientReduce {
  public:
    // `accumulation`: micro-steps a step.
    static GradientReduce lay_out(Arena& arena, const ParameterStore& store, int ranks, std::int64_t accumulation);

    struct Lent {
        Tensor whole;             // [GroupCut::whole], its padding zero
        bool accumulate = false;  // add to what it holds
    };
    // Before the backward pass of a block: the buffers of its groups, in their order.
    const std::vector<Lent>& lend(kernels::Backend& backend, comm::Comm& comm, std::size_t block);
    // After it. `last` says that this is the step's last micro-step.
    void block_done(kernels::Backend& backend, comm::Comm& comm, std::size_t block, bool last);

    // After the last micro-step: waits, so that every ParameterStore::gradient_shard holds the sum over ranks.
    void finish(kernels::Backend& backend, comm::Comm& comm);
    // Where every rank updates all weights it needs all gradients: exchanges the shards.
    void share(comm::Comm& comm) const;

  private:
    struct Reduction {
        comm::Transfer transfer;
        std::size_t group = 0;
        Tensor landing;  // of the shard of the sum when it must be added to the shard; else empty
    };
    // What one block has under way; two take turns.
    struct Lane {
        Tensor passing;  // whole gradients of the block's groups that have no buffer of their own
        Tensor scratch;  // of its reductions
        Tensor landing;
        std::vector<Reduction> reductions;
    };
    void lay_out_lanes(Arena& arena, std::int64_t accumulation);
    bool completes(std::size_t group, std::size_t block) const { return first_block_[group] == block; }
    void start(comm::Comm& comm, Lane& lane, std::size_t group, const Tensor& whole, std::int64_t scratch_at);
    void complete(kernels::Backend& backend, comm::Comm& comm, Lane& lane);

    const ParameterStore* store_ = nullptr;
    int ranks_ = 1;
    std::vector<std::size_t> first_block_;  // of each group
    std::vector<Tensor> own_;               // whole gradients kept from block to block; empty: a passing buffer
    std::vector<char> has_own_;             // by group
    std::vector<char> holds_;               // by group: own_ holds gradients to add to
    std::vector<char> reduced_;             // by group: the shard holds gradients of this step
    std::array<Lane, 2> lanes_;
    std::size_t lane_ = 0;
    std::vector<Lent> lent_;
};

}  // namespace atl::train
