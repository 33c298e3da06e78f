#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>

#include "trainer/comm/comm.h"
#include "trainer/comm/node_groups.h"
#include "trainer/parallel/staging.h"

namespace atl::parallel {

// Sums over ranks, as Collectives::start_reduce_scatter says. A piece of every rank's part travels at a time, as large
// as the scratch allows: a reduction that fits its scratch is one piece. The next piece of a reduction begins in
// progress() or finish(), whichever comes first.
//
// Reductions take turns on kLanes lanes, and so many are under way at once. A lane has groups of its own, on which the
// pieces of its reductions go one after another: so they begin in the same order on every rank, whenever each gets to
// it.
class ReduceInPieces {
  public:
    static constexpr std::size_t kLanes = 4;  // what two neighbouring blocks reduce, of two units each

    struct Lane;
    struct Reduction {
        tensor::Tensor whole;    // of this rank
        tensor::Tensor shard;    // gets the sum over ranks of this rank's part of it
        tensor::Tensor scratch;  // in the format that travels; the larger, the larger the pieces
        comm::Awaited awaited;
        Staging staging;

        Lane* lane = nullptr;
        std::int64_t done = 0;         // elements of each part; all of them: it is complete
        std::int64_t piece = 0;        // elements of each part that are under way
        bool is_across_nodes = false;  // the second of a piece's two steps
        comm::Comm* group = nullptr;
        comm::Transfer transfer;
    };
    struct Lane {
        std::unique_ptr<comm::Comm> ranks;      // null where there are `nodes`
        std::optional<comm::NodeGroups> nodes;  // where sums take two steps: within a machine, then between machines
        std::deque<Reduction*> under_way;       // the first: the one whose piece is
    };

    // Every member makes the same call. All must outlive it; `nodes` is null where `comm` is of one machine.
    ReduceInPieces(comm::Comm& comm, const comm::NodeGroups* nodes, kernels::Backend& backend);

    // Begins once those before it on its lane are complete. It stays where it is until then.
    void start(Reduction& reduction);
    void finish(Reduction& reduction);
    void progress();

  private:
    // Where the parts of the piece that is under way lie: what arrives; what is sent, where that is rounded; the sum
    // over a machine's ranks.
    struct Scratch {
        tensor::Tensor arrives, rounded, summed;
    };
    Scratch scratch_of(const Reduction& reduction) const;
    std::int64_t piece_max(const Reduction& reduction) const;
    void begin_piece(Reduction& reduction);
    std::span<const std::byte> leave_device(Reduction& reduction, const tensor::Tensor& rounded);
    void begin_second_step(Reduction& reduction);
    // Waits for what is under way of a lane's first, adds it up and begins what comes next.
    void advance(Lane& lane);
    static bool rounds(const Reduction& reduction) { return reduction.scratch.dtype() != reduction.whole.dtype(); }

    kernels::Backend* backend_;
    int ranks_;
    std::array<Lane, kLanes> lanes_;
    std::size_t next_lane_ = 0;
};

}  // namespace atl::parallel
