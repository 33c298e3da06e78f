#pragma once

#include <array>

#include "trainer/comm/comm.h"
#include "trainer/kernels/backend.h"

namespace atl::parallel {

using tensor::Tensor;

// What the ranks of a group exchange of a device's tensors. Everything is in the order of the device's calls: a
// transfer sees what was asked for before its start, and what is asked for after its wait() sees what it brought. In
// between nothing touches the tensors. Every member calls the same operations in the same order, from one thread.
//
// Here the network is MPI, which takes memory of the host alone: where that reaches the device's, the tensors' own,
// else pinned buffers of each transfer, made when it first needs them. Then start waits until what is sent has left the
// device. So ranks that share a GPU exchange, too. A library that moves device memory by itself (NCCL, RCCL) keeps the
// contract by events on a stream of its own, and the host never waits.
//
//   const Transfer gather = group.start_all_gather(shard, whole);
//   compute(previous);      // calls progress() now and then
//   group.wait(gather);
//   compute(whole);
class Collectives {
  public:
    using Transfer = comm::Transfer;

    // Both must outlive it.
    Collectives(comm::Comm& comm, kernels::Backend& backend) : comm_(&comm), backend_(&backend) {}

    comm::Comm& comm() const { return *comm_; }
    int rank() const { return comm_->rank(); }
    int size() const { return comm_->size(); }

    // Every rank's `shard`, one after another, into `whole`. `shard` may be this rank's own part of it.
    Transfer start_all_gather(const Tensor& shard, const Tensor& whole);
    // Part r of every rank's `whole`, r being this rank, into `parts` one after another.
    Transfer start_all_to_all(const Tensor& whole, const Tensor& parts);
    // The sum over ranks of `whole`, of which this rank gets its part in `shard`, which may lie in `whole`; added in
    // fp32 by the fixed tree of Backend::sum_pieces. It travels in the format of `scratch`, which has reduce_scratch()
    // elements.
    static std::int64_t reduce_scratch(tensor::DType of_whole, tensor::DType of_scratch, std::int64_t whole) {
        return of_whole == of_scratch ? whole : 2 * whole;
    }
    Transfer start_reduce_scatter(const Tensor& whole, const Tensor& shard, const Tensor& scratch);
    void wait(Transfer transfer);

    void all_gather(const Tensor& shard, const Tensor& whole) { wait(start_all_gather(shard, whole)); }
    // The sum over ranks of a few numbers (fp64, at most Comm::kSmallCountMax) in their place, by the fixed tree.
    void all_reduce(const Tensor& few);
    void progress() { comm_->progress(); }

  private:
    using Exchange = Transfer (comm::Comm::*)(std::span<const std::byte>, std::span<std::byte>);
    struct Slot {
        bool is_busy = false;
        Transfer transfer;
        Tensor to;                      // what arrives
        Tensor sum;                     // gets the sum of its pieces; empty: nothing is added
        tensor::Memory sent, received;  // pinned, where the host does not reach the device's memory
    };

    Transfer start(Exchange exchange, const Tensor& from, const Tensor& to, const Tensor& sum);
    void send_staged(Slot& slot, Exchange exchange, const Tensor& from);
    void receive_staged(const Slot& slot);

    comm::Comm* comm_;
    kernels::Backend* backend_;
    std::array<Slot, comm::Comm::kTransfersMax> slots_;
    tensor::Memory few_;  // pinned, of all_reduce()
};

}  // namespace atl::parallel
