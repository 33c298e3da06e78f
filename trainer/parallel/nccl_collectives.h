#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/comm/nccl.h"
#include "trainer/parallel/collectives.h"

namespace atl::parallel {

// What is under way in all groups of a device: who waits on the host for that device knows by it whom it waits for.
class NcclWatch {
  public:
    explicit NcclWatch(const comm::Nccl& nccl) : nccl_(nccl) {}

    void add(const comm::Comm& ranks, comm::Nccl::Communicator group) { groups_.push_back({&ranks, group}); }
    void remove(comm::Nccl::Communicator group);
    // A transfer ends with that event. Events come in the order of their numbers.
    void note_end(kernels::Event event, const comm::Awaited& awaited) { ends_.push_back({event.number, awaited}); }
    // The transfer that ends with it, where one does. All events before have happened.
    std::optional<comm::Awaited> transfer_until(kernels::Event event);
    // Ends the run where a group has failed.
    void end_if_failed(const comm::Awaited& awaited) const;
    // Ends the run: by what NCCL says, and what was waited for then.
    [[noreturn]] void end_run(const comm::Comm& ranks, comm::Nccl::Communicator group, comm::NcclResult result,
                              const comm::Awaited& awaited) const;

  private:
    struct Group {
        const comm::Comm* ranks;
        comm::Nccl::Communicator communicator;
    };
    struct End {
        std::uint64_t event;
        comm::Awaited awaited;
    };
    const comm::Nccl& nccl_;
    std::vector<Group> groups_;
    std::deque<End> ends_;  // that the host may still wait for
};

// A group of several ranks over NCCL, which moves memory of devices from one to another: one communicator, and one
// stream on which all its transfers are in the order in which they were asked for. Each begins after what kCompute was
// asked for before, and takes memory of the host where the device reaches it (pinned). Only the first ones make the
// host wait for the other ranks, until NCCL has connected them.
//
// Sums. NCCL adds in an order of its own, by rings or trees over ranks, and in the format that travels: so with bf16 a
// sum is rounded at each hop. In fp32 two ranks' sums have the same bits as by MPI. With more ranks they have equal
// bits from run to run only as far as NCCL keeps to one way for the same ranks, machines and sizes. What is only moved,
// by gathers and all-to-all, is the same bit for bit.
class NcclCollectives final : public Collectives {
  public:
    // All must outlive it. Every member makes the same call, and one more when it is destroyed.
    NcclCollectives(comm::Comm& comm, kernels::Backend& backend, const comm::Nccl& nccl,
                    std::shared_ptr<NcclWatch> watch);
    NcclCollectives(const NcclCollectives&) = delete;
    NcclCollectives& operator=(const NcclCollectives&) = delete;
    ~NcclCollectives() override;

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
    void progress() override {}

  private:
    struct Slot {
        bool is_busy = false;
        kernels::Event ended;
        Tensor rounded, exact;  // a sum that arrives in the one and is converted into the other; empty: none is
    };

    Slot& claim_slot();
    Transfer transfer_of(const Slot& slot) const { return {static_cast<int>(&slot - slots_.data())}; }
    // A transfer of NCCL's, which `ask` asks it for.
    Slot& start(const comm::Awaited& awaited, std::string_view collective,
                const std::function<comm::NcclResult()>& ask);
    comm::NcclResult ask_all_to_all(const Tensor& whole, const Tensor& parts) const;
    // Until NCCL has done what it was asked for on the host, for which it may need other ranks.
    void settle(comm::NcclResult asked, const comm::Awaited& awaited);

    comm::Comm* comm_;
    kernels::Backend* backend_;
    const comm::Nccl* nccl_;
    std::shared_ptr<NcclWatch> watch_;
    kernels::LibraryStream stream_;
    comm::Nccl::Communicator communicator_ = nullptr;
    std::array<Slot, comm::Comm::kTransfersMax> slots_;
};

// It takes no pinned memory. A reduction's scratch is what is sent where that is rounded before: of all its elements.
class NcclLibrary final : public ExchangeLibrary {
  public:
    // A GPU's backend, whose card no two ranks of a group share. Both must outlive it and its groups.
    NcclLibrary(kernels::Backend& backend, const comm::Nccl& nccl)
        : backend_(&backend), nccl_(&nccl), watch_(std::make_shared<NcclWatch>(nccl)) {}

    std::unique_ptr<Collectives> make_group(comm::Comm& ranks) const override;
    std::int64_t gather_bytes(int, std::int64_t, const GatherSpaces&) const override { return 0; }
    std::int64_t all_to_all_bytes(int, std::int64_t) const override { return 0; }
    ReduceNeed reduce_need(const Reduction& reduction) const override;
    std::optional<comm::Awaited> transfer_until(kernels::Event event) const override {
        return watch_->transfer_until(event);
    }
    void end_if_failed(const comm::Awaited& awaited) const override { watch_->end_if_failed(awaited); }

  private:
    kernels::Backend* backend_;
    const comm::Nccl* nccl_;
    std::shared_ptr<NcclWatch> watch_;
};

}  // namespace atl::parallel
