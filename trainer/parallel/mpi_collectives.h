#pragma once

#include <array>
#include <optional>
#include <vector>

#include "trainer/comm/node_groups.h"
#include "trainer/parallel/collectives.h"
#include "trainer/parallel/reduce_in_pieces.h"
#include "trainer/parallel/staging.h"

namespace atl::parallel {

// A group over MPI, which takes memory of the host alone: where that reaches the device's, the tensors' own, else
// pinned memory that they pass through. So ranks that share a GPU exchange, too. Tensors in pinned memory go from and
// to their own place; start waits until the device is done with them.
//
// Where the group lies on several machines, with as many consecutive ranks on each, what is gathered crosses between
// two machines once, not once a rank: first between ranks of different machines, then within each. Sums are added
// within a machine first, where its ranks are a power of two: so they extend the same tree, and no bit changes (but
// where what travels has fewer digits than what is added up: the sum over a machine's ranks is rounded, too). The
// second step, as the next piece of a reduction, begins in progress() or wait(), whichever comes first.
class MpiCollectives final : public Collectives {
  public:
    // Both must outlive it. Every member makes the same call.
    MpiCollectives(comm::Comm& comm, kernels::Backend& backend);
    MpiCollectives(const MpiCollectives&) = delete;
    MpiCollectives& operator=(const MpiCollectives&) = delete;

    comm::Comm& comm() const override { return *comm_; }
    Transfer start_all_gather(const Tensor& shard, const Tensor& whole, const GatherSpaces& spaces,
                              const Tensor& pinned, const comm::Awaited& awaited) override;
    Transfer start_copy_in(const Tensor& pinned, const Tensor& on_device) override;
    Transfer start_all_to_all(const Tensor& whole, const Tensor& parts, const Tensor& pinned,
                              const comm::Awaited& awaited) override;
    Transfer start_reduce_scatter(const Tensor& whole, const Tensor& shard, const ReduceMemory& memory,
                                  const comm::Awaited& awaited) override;
    void wait(Transfer transfer) override;
    void all_reduce(const Tensor& few, const Tensor& pinned) override;
    void progress() override;

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
};

// Pinned memory is what is sent and what arrives where the host does not reach the device's memory. A reduction's
// scratch is what arrives and, where that is rounded, what is sent: of all its elements, or of as many as may be on
// their way at once.
class MpiLibrary final : public ExchangeLibrary {
  public:
    explicit MpiLibrary(kernels::Backend& backend) : backend_(&backend) {}

    std::unique_ptr<Collectives> make_group(comm::Comm& ranks) const override;
    std::int64_t gather_bytes(int ranks, std::int64_t shard_bytes, const GatherSpaces& spaces) const override;
    std::int64_t all_to_all_bytes(int ranks, std::int64_t whole_bytes) const override;
    ReduceNeed reduce_need(const Reduction& reduction) const override;

  private:
    kernels::Backend* backend_;
};

}  // namespace atl::parallel
