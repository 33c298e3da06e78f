#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "trainer/comm/comm.h"
#include "trainer/comm/node_groups.h"
#include "trainer/parallel/staging.h"

namespace atl::parallel {

// Sums over ranks of tensors so large that what all ranks send of them at once would take too much memory: a piece of
// every rank's part travels at a time. The pieces of a reduction, and the reductions, go one after another; the next
// piece begins in progress() or finish(), whichever comes first. Sums are those of Collectives::start_reduce_scatter,
// bit for bit, within machines first where there are `nodes`.
class ReduceInPieces {
  public:
    struct Reduction {
        tensor::Tensor whole;    // of this rank
        tensor::Tensor shard;    // gets the sum over ranks of this rank's part of it
        tensor::Tensor scratch;  // in the format that travels; the larger, the larger the pieces
        comm::Awaited awaited;

        std::int64_t done = 0;  // elements of each part; all of them: it is complete
        std::int64_t piece = 0;
        bool is_across_nodes = false;  // the second of a piece's two steps
        comm::Comm* group = nullptr;
        comm::Transfer transfer;
        Staging staging;
    };

    // Every member makes the same call. All must outlive it; `nodes` is null where sums take one step.
    ReduceInPieces(comm::Comm& comm, const comm::NodeGroups* nodes, kernels::Backend& backend);

    // Begins when those before it are complete. It stays where it is until then.
    void start(Reduction& reduction);
    void finish(Reduction& reduction);
    void progress();

  private:
    // Parts of a reduction's scratch for the piece that is under way: what arrives; what is sent, where that is
    // rounded; the sum over a machine's ranks.
    struct Scratch {
        tensor::Tensor arrives, rounded, summed;
    };
    Scratch scratch_of(const Reduction& reduction) const;
    std::int64_t piece_max(const Reduction& reduction) const;
    void begin_piece(Reduction& reduction);
    void begin_second_step(Reduction& reduction);
    // Waits for what is under way of the oldest, adds it up and begins what comes next.
    void advance();
    static bool rounds(const Reduction& reduction) { return reduction.scratch.dtype() != reduction.whole.dtype(); }

    kernels::Backend* backend_;
    int ranks_;
    std::unique_ptr<comm::Comm> comm_;       // of its own: pieces begin at different times on different ranks
    std::optional<comm::NodeGroups> nodes_;  // likewise
    std::deque<Reduction*> under_way_;
};

}  // namespace atl::parallel
