#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/comm/node_groups.h"
#include "trainer/kernels/backend.h"
#include "trainer/parallel/reduce_in_pieces.h"
#include "trainer/parallel/staging.h"

namespace atl::parallel {

using tensor::Tensor;

// Where the tensors of a gather lie.
struct GatherSpaces {
    kernels::Space shard = kernels::Space::kDevice;
    kernels::Space whole = kernels::Space::kDevice;
};

// What the ranks of a group exchange of a device's tensors. Everything is in the order of the device's calls: a
// transfer sees what was asked for before its start, and what is asked for after its wait() sees what it brought. In
// between nothing touches the tensors. Every member calls the same operations in the same order, from one thread.
//
// Here the network is MPI, which takes memory of the host alone: where that reaches the device's, the tensors' own,
// else pinned buffers of each transfer, made when it first needs them. Then start waits until what is sent has left the
// device. So ranks that share a GPU exchange, too. Tensors in pinned memory go from and to their own place; start waits
// until the device is done with them. A library that moves device memory by itself (NCCL, RCCL) keeps the contract by
// events on a stream of its own, and the host never waits.
//
// Where the group lies on several machines, with as many consecutive ranks on each, what is gathered crosses between
// two machines once, not once a rank: first between ranks of different machines, then within each. Sums are added
// within a machine first, where its ranks are a power of two: so they extend the same tree, and no bit changes (but
// where what travels has fewer digits than what is added up: the sum over a machine's ranks is rounded, too). The
// second step, as the next piece of a reduction, begins in progress() or wait(), whichever comes first.
//
//   const Transfer gather = group.start_all_gather(shard, whole);
//   compute(previous);      // calls progress() now and then
//   group.wait(gather);
//   compute(whole);
class Collectives {
  public:
    using Transfer = comm::Transfer;

    // Both must outlive it. Every member makes the same call.
    Collectives(comm::Comm& comm, kernels::Backend& backend);
    Collectives(const Collectives&) = delete;
    Collectives& operator=(const Collectives&) = delete;

    comm::Comm& comm() const { return *comm_; }
    int rank() const { return comm_->rank(); }
    int size() const { return comm_->size(); }

    // `awaited` says what is moved ("the weights" of "layers.17"); which collective that is each of these knows.

    // Every rank's `shard`, one after another, into `whole`. `shard` may be this rank's own part of it.
    Transfer start_all_gather(const Tensor& shard, const Tensor& whole, const comm::Awaited& awaited,
                              const GatherSpaces& spaces = {});
    // No exchange: this rank's `pinned` into `on_device`, on a stream of its own while the device computes. The host
    // never waits.
    Transfer start_copy_in(const Tensor& pinned, const Tensor& on_device);
    // Part r of every rank's `whole`, r being this rank, into `parts` one after another.
    Transfer start_all_to_all(const Tensor& whole, const Tensor& parts, const comm::Awaited& awaited);
    // The sum over ranks of `whole`, of which this rank gets its part in `shard`, which may lie in `whole`; added in
    // fp32 by the fixed tree of Backend::sum_pieces. It travels in the format of `scratch`, which has reduce_scratch()
    // elements, and where that is less than all ranks send at once, in pieces. Destroys `whole`.
    static constexpr std::int64_t kReduceScratchMax = std::int64_t{1} << 25;  // elements
    static std::int64_t reduce_scratch(tensor::DType of_whole, tensor::DType of_scratch, std::int64_t whole,
                                       std::int64_t max = kReduceScratchMax) {
        return (of_whole == of_scratch ? 1 : 2) * std::min(whole, max);
    }
    Transfer start_reduce_scatter(const Tensor& whole, const Tensor& shard, const Tensor& scratch,
                                  const comm::Awaited& awaited);
    void wait(Transfer transfer);

    void all_gather(const Tensor& shard, const Tensor& whole, const comm::Awaited& awaited,
                    const GatherSpaces& spaces = {}) {
        wait(start_all_gather(shard, whole, awaited, spaces));
    }
    // The sum over ranks of a few numbers (fp64, at most Comm::kSmallCountMax) in their place, by the fixed tree.
    void all_reduce(const Tensor& few);
    void progress();

  private:
    enum class Kind : std::uint8_t { kFree, kExchange, kReduction, kCopyIn };
    struct Slot {
        Kind kind = Kind::kFree;
        comm::Awaited awaited;
        // Of an exchange.
        comm::Comm* group = nullptr;  // whose transfer is under way
        Transfer transfer;
        Tensor to;  // what arrives
        kernels::Space to_space = kernels::Space::kDevice;
        bool is_first_step = false;  // of a gather's two
        Staging staging;
        // Of the others.
        ReduceInPieces::Reduction reduction;
        kernels::Event copied;
    };

    Slot& claim_slot(Kind kind, const comm::Awaited& awaited, std::string_view collective);
    Transfer transfer_of(const Slot& slot) const { return {static_cast<int>(&slot - slots_.data())}; }
    Transfer copy_alone(const Tensor& from, const Tensor& to);
    void gather_on_node();  // the second step of the oldest gather in its first, once that is done

    comm::Comm* comm_;
    kernels::Backend* backend_;
    // Gathers in two steps have groups of their own: the second steps begin at different times on different ranks, but
    // in the order in which the first ones did.
    std::optional<comm::NodeGroups> nodes_;
    std::vector<Slot*> first_steps_;  // gathers in their first step, the oldest first
    std::array<Slot, comm::Comm::kTransfersMax> slots_;
    std::optional<ReduceInPieces> reductions_;  // absent: of one rank
    Staging few_;                               // of all_reduce()
};

}  // namespace atl::parallel
