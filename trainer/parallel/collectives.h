#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/comm/comm.h"
#include "trainer/kernels/backend.h"
#include "trainer/tensor/arena.h"

namespace atl::parallel {

using tensor::Tensor;

// Where the tensors of a gather lie.
struct GatherSpaces {
    kernels::Space shard = kernels::Space::kDevice;
    kernels::Space whole = kernels::Space::kDevice;
};

// What the ranks of a group exchange of a device's tensors: the contract of a library that moves them: MPI
// (mpi_collectives.h) or NCCL (nccl_collectives.h). Every member calls the same operations in the same order, from one
// thread.
//
// A library promises:
//   Order. Everything is in the order of Stream::kCompute. A transfer sees what that was asked for before its start,
//     and what it is asked for after wait() sees what the transfer brought; in between nothing touches the tensors, the
//     scratch or the pinned memory. Where the library moves memory of the host alone, start waits on the host until
//     what is sent has left the device, and wait() until what was sent here has come. One that moves the device's
//     memory works on a stream of its own, which at the start waits for an event of kCompute, as kCompute in wait()
//     does for one of that stream: the host never waits.
//   Bits. Equal inputs of the ranks of a group give equal bits in every run. Sums over ranks are added in fp32, by the
//     fixed tree of Backend::sum_pieces over ranks; a library that adds in another order or format says in which.
//   Ends. A rank that waits for others longer than Comm::limit_waits allows, on the host or on a stream, ends the run
//     with a message that says who waits for what (`awaited`), as does a failing network.
//
//   const Transfer gather = group.start_all_gather(shard, whole, {}, pinned, {"the weights", "layers.17"});
//   compute(previous);      // calls progress() now and then
//   group.wait(gather);
//   compute(whole);
class Collectives {
  public:
    using Transfer = comm::Transfer;

    virtual ~Collectives() = default;

    // The same ranks, for what the host has to tell.
    virtual comm::Comm& comm() const = 0;
    int rank() const { return comm().rank(); }
    int size() const { return comm().size(); }

    // `awaited` says what is moved ("the weights" of "layers.17"); which collective that is each of these knows. The
    // `pinned` memory and the scratch of each are what ExchangeLibrary says that it takes.

    // Every rank's `shard`, one after another, into `whole`. `shard` may be this rank's own part of it.
    virtual Transfer start_all_gather(const Tensor& shard, const Tensor& whole, const GatherSpaces& spaces,
                                      const Tensor& pinned, const comm::Awaited& awaited) = 0;
    // No exchange: this rank's `pinned` into `on_device`, on a stream of its own while the device computes. The host
    // never waits.
    virtual Transfer start_copy_in(const Tensor& pinned, const Tensor& on_device) = 0;
    // Part r of every rank's `whole`, r being this rank, into `parts` one after another.
    virtual Transfer start_all_to_all(const Tensor& whole, const Tensor& parts, const Tensor& pinned,
                                      const comm::Awaited& awaited) = 0;
    struct ReduceMemory {
        Tensor scratch;  // in the format that travels; empty: the library takes none, and `whole` travels as it is
        Tensor pinned;
    };
    // The sum over ranks of `whole`, of which this rank gets its part in `shard`, which may lie in `whole`. Destroys
    // `whole`.
    virtual Transfer start_reduce_scatter(const Tensor& whole, const Tensor& shard, const ReduceMemory& memory,
                                          const comm::Awaited& awaited) = 0;
    virtual void wait(Transfer transfer) = 0;

    void all_gather(const Tensor& shard, const Tensor& whole, const GatherSpaces& spaces, const Tensor& pinned,
                    const comm::Awaited& awaited) {
        wait(start_all_gather(shard, whole, spaces, pinned, awaited));
    }
    // The sum over ranks of a few numbers (fp64, at most Comm::kSmallCountMax) in their place, by the fixed tree.
    // `pinned` has as many.
    virtual void all_reduce(const Tensor& few, const Tensor& pinned) = 0;
    // Moves on what is under way, where that takes the host.
    virtual void progress() = 0;
};

// A library that moves a device's tensors between ranks: it makes the groups, and says what their transfers take beside
// the tensors. Who starts them lays that out with its own memory; it is known without ranks, so that a plan counts it.
class ExchangeLibrary {
  public:
    virtual ~ExchangeLibrary() = default;

    // Every member of `ranks`, which must outlive the group, makes the same call.
    virtual std::unique_ptr<Collectives> make_group(comm::Comm& ranks) const = 0;

    // Bytes of pinned memory. Of a group of one rank all are 0.
    virtual std::int64_t gather_bytes(int ranks, std::int64_t shard_bytes, const GatherSpaces& spaces) const = 0;
    virtual std::int64_t all_to_all_bytes(int ranks, std::int64_t whole_bytes) const = 0;

    // A reduction of `elements` in one format, which travel in another.
    struct Reduction {
        int ranks = 1;
        std::int64_t elements = 0;
        tensor::DType format = tensor::DType::kF32;
        tensor::DType travels = tensor::DType::kF32;
        std::int64_t elements_max = kReduceElementsMax;  // on their way at once
    };
    static constexpr std::int64_t kReduceElementsMax = std::int64_t{1} << 25;
    struct ReduceNeed {
        std::int64_t scratch = 0;  // elements, in the format that travels
        std::int64_t pinned_bytes = 0;
    };
    virtual ReduceNeed reduce_need(const Reduction& reduction) const = 0;

    // The transfer that ends with this event of the device, where it is on a stream of the library's. The host waits
    // for the event: all before have happened.
    virtual std::optional<comm::Awaited> transfer_until(kernels::Event) const { return std::nullopt; }
    // Ends the run where the library knows that a transfer will never end. The host waits for `awaited` meanwhile.
    virtual void end_if_failed(const comm::Awaited& /*awaited*/) const {}
};

// MPI for this device, which must outlive it and its groups.
std::unique_ptr<ExchangeLibrary> open_exchange_library(kernels::Backend& backend);

// From now on the host waits for the device by `ranks`, within its limit of waits: one that is too long ends the run,
// with the transfer of the library's that it is for, or else the work. `ranks` must outlive the device.
void wait_by_ranks(kernels::Backend& backend, comm::Comm& ranks, std::shared_ptr<const ExchangeLibrary> library);

// Asks for a copy on kIn, after all that kCompute was asked for: that may read the place or write what is copied.
// Returns its end.
kernels::Event copy_in(kernels::Backend& backend, const Tensor& pinned, const Tensor& on_device);

// Where what takes part in exchanges is laid out.
struct Arenas {
    tensor::Arena& device;
    tensor::Arena& pinned;
    const ExchangeLibrary& library;
};

}  // namespace atl::parallel
