#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/parallel/pairwise_sum.h"
#include "trainer/parallel/parameter_store.h"
#include "trainer/parallel/process_groups.h"
#include "trainer/parallel/two_ended_buffer.h"

namespace atl::parallel {

// Adds up the shards that several copies of a model hold, in place, one unit's while the next is prepared.
class ReplicaReduce {
  public:
    static ReplicaReduce lay_out(const Arenas& arenas, const ParameterStore& store, std::int64_t elements_max);
    void add(Collectives& replicas, const Tensor& shard, const comm::Awaited& awaited);
    // Waits for all that was added.
    void finish(Collectives& replicas);

  private:
    void begin_gather(Collectives& replicas);  // of the sum under way, if there is one

    Collectives::ReduceMemory memory_;
    Tensor gather_pinned_;
    Tensor reducing_;  // the shard under way; empty: none
    comm::Awaited awaited_;
    Collectives::Transfer reduce_;
    Collectives::Transfer gather_;  // of the one before
};

// Lends each block a buffer for its units' unsharded gradients and sums them over the ranks once they are complete,
// while the next blocks' backward passes run.
//
// Modes that keep whole gradients add micro-steps up locally and reduce once a step. The others reduce each micro-step
// from one of two buckets and add to the shard; a unit that two blocks share (a tied embedding) has a buffer
// of its own until its second block is done. In the hybrid modes the shards of the copies are added up after the last
// micro-step.
//
// With a fixed tree every micro-step is one sequence, of which the ranks have as many neighbouring ones. In every mode
// each rank gets the sequences' gradients one by one for the elements that are its alone, and adds them to a
// PairwiseSum.
class GradientReduce {
  public:
    struct Options {
        std::int64_t accumulation = 1;          // micro-steps a step
        std::int64_t fixed_tree_sequences = 0;  // of a step, over all ranks, when a fixed tree adds them; 0: by ranks
        std::int64_t elements_max = ExchangeLibrary::kReduceElementsMax;  // of a reduction on their way at once
    };
    static GradientReduce lay_out(const Arenas& arenas, const ParameterStore& store, const Options& options);

    struct UnshardedGradient {
        Tensor whole;             // [ShardSpec::whole], its padding zero; empty: the unit is frozen
        bool accumulate = false;  // add to what it holds
    };
    // Before the backward pass of a block: the buffers of its units, in their order.
    const std::vector<UnshardedGradient>& unsharded_gradients(kernels::Backend& backend, ProcessGroups& ranks,
                                                              std::size_t block);
    // After it. `last` says that this is the step's last micro-step.
    void block_done(kernels::Backend& backend, ProcessGroups& ranks, std::size_t block, bool last);

    // After the last micro-step: waits, so that every ParameterStore::gradient_shard holds the sum over ranks.
    void finish(kernels::Backend& backend, ProcessGroups& ranks);
    // After that, where every rank updates all weights and so needs all gradients: exchanges the shards.
    void share(ProcessGroups& ranks) const;

  private:
    struct Reduction {
        Collectives::Transfer transfer;
        std::size_t unit = 0;
        Tensor receive_buffer;  // the shard of the sum when it is added to what the shard holds, or the sequences;
                                // else empty
        bool last = false;      // of this step
    };
    // Where in those of its block the next unit's scratch, pinned memory and received shard begin.
    struct Room {
        std::int64_t scratch = 0;
        std::int64_t pinned = 0;
        std::int64_t received = 0;
    };
    // What one block has under way; two take turns, at the ends of the buffers below.
    struct Bucket {
        Tensor unsharded;  // gradients of the block's units that have no buffer of their own
        Tensor scratch;    // of its reductions
        Tensor pinned;
        Tensor receive_buffer;
        std::vector<Reduction> reductions;
    };
    void lay_out_buckets(const Arenas& arenas);
    void lay_out_gathers(const Arenas& arenas);
    ExchangeLibrary::ReduceNeed find_need(const ExchangeLibrary& library, std::size_t unit) const;
    void take_room(Bucket& bucket, std::size_t block) const;
    comm::Awaited gradients_of(std::size_t unit) const;
    bool completes(std::size_t unit, std::size_t block) const { return first_block_[unit] == block; }
    void start(ProcessGroups& ranks, Bucket& bucket, Reduction reduction, const Tensor& whole, Room& room);
    void complete(kernels::Backend& backend, ProcessGroups& ranks, Bucket& bucket);
    void wait(Collectives& ranks, const Reduction& reduction) const;
    void add_to_shard(kernels::Backend& backend, ProcessGroups& ranks, const Reduction& reduction);
    void add_sequences(kernels::Backend& backend, ProcessGroups& ranks, const Reduction& reduction);
    bool uses_fixed_tree() const { return options_.fixed_tree_sequences > 0; }
    tensor::DType unsharded_format(std::size_t unit) const {
        const kernels::Formats& formats = store_->model().formats;
        return has_buffer(unit) ? formats.accumulated : formats.gradients;
    }
    bool has_buffer(std::size_t unit) const { return unit_buffers_[unit].element_count() > 0; }
    int shard_ranks() const { return store_->layout().shard_ranks(); }

    const ParameterStore* store_ = nullptr;
    Options options_;
    std::vector<std::size_t> first_block_;  // of each unit
    std::vector<Tensor> unit_buffers_;      // unsharded gradients of a unit alone; empty: they are in the bucket
    std::vector<char> accumulates_;         // by unit: that buffer holds gradients to add to
    std::vector<char> reduced_;             // by unit: the shard holds gradients of this step
    std::vector<ExchangeLibrary::ReduceNeed> needs_;  // by unit: what its gradients take on their way
    TwoEndedBuffer unsharded_, scratch_, pinned_, receive_buffer_;
    Tensor gather_pinned_;  // of the gathers that are waited for at once: of sequences' sums, in share()
    std::array<Bucket, 2> buckets_;
    std::size_t bucket_ = 0;
    ReplicaReduce replica_reduce_;
    PairwiseSum pairwise_sum_;
    std::vector<UnshardedGradient> lent_;
};

}  // namespace atl::parallel
