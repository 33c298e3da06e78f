#include "trainer/parallel/nccl_collectives.h"

#include <algorithm>
#include <utility>

#include "shared/log/warn.h"
#include "trainer/comm/launch.h"
#include "trainer/parallel/mpi_collectives.h"
#include "trainer/parallel/sharding.h"

namespace atl::parallel {

using comm::Nccl;
using comm::NcclResult;
using comm::NcclType;
using kernels::Stream;

namespace {

NcclType type_of(tensor::DType dtype) {
    switch (dtype) {
        case tensor::DType::kF32:
            return NcclType::kFloat32;
        case tensor::DType::kF16:
            return NcclType::kFloat16;
        case tensor::DType::kBF16:
            return NcclType::kBfloat16;
        case tensor::DType::kF64:
            return NcclType::kFloat64;
        default:
            check(false, "sums are of floating-point numbers");
            return NcclType::kUint8;
    }
}

std::size_t elements(const Tensor& tensor) {
    return static_cast<std::size_t>(tensor.element_count());
}

std::size_t bytes(const Tensor& tensor) {
    return static_cast<std::size_t>(tensor.byte_count());
}

}  // namespace

void NcclWatch::remove(Nccl::Communicator group) {
    std::erase_if(groups_, [&](const Group& one) { return one.communicator == group; });
}

std::optional<comm::Awaited> NcclWatch::transfer_until(kernels::Event event) {
    while (!ends_.empty() && ends_.front().event < event.number) ends_.pop_front();
    if (ends_.empty() || ends_.front().event != event.number) return std::nullopt;
    return ends_.front().awaited;
}

void NcclWatch::end_if_failed(const comm::Awaited& awaited) const {
    for (const auto& [ranks, communicator] : groups_) {
        NcclResult state = NcclResult::kSuccess;
        const NcclResult asked = nccl_.comm_get_async_error(communicator, &state);
        if (asked != NcclResult::kSuccess) state = asked;
        if (state != NcclResult::kSuccess && state != NcclResult::kInProgress)
            end_run(*ranks, communicator, state, awaited);
    }
}

void NcclWatch::end_run(const comm::Comm& ranks, Nccl::Communicator group, NcclResult result,
                        const comm::Awaited& awaited) const {
    const std::string unit = awaited.unit.empty() ? "" : " of " + std::string(awaited.unit);
    log::warn(nccl_.name() + " failed while rank " + std::to_string(ranks.rank()) + " of " +
              std::to_string(ranks.size()) + " waited for " + std::string(awaited.what) + unit + " (" +
              std::string(awaited.collective) + "): " + nccl_.get_error_string(result) +
              "; it says: " + nccl_.get_last_error(group) +
              ". NCCL_DEBUG=WARN in the environment tells more, and --distributed-backend mpi does without NCCL");
    for (const Group& other : groups_) static_cast<void>(nccl_.comm_abort(other.communicator));
    comm::abort_run(1);
}

NcclCollectives::NcclCollectives(comm::Comm& comm, kernels::Backend& backend, const Nccl& nccl,
                                 std::shared_ptr<NcclWatch> watch)
    : comm_(&comm), backend_(&backend), nccl_(&nccl), watch_(std::move(watch)), stream_(backend.open_stream()) {
    check(stream_.handle != nullptr, "NCCL moves the memory of GPUs alone");
    const comm::Awaited awaited{"the other ranks", {}, "start of NCCL"};
    comm::NcclUniqueId id;
    if (comm.rank() == 0) settle(nccl.get_unique_id(&id), awaited);
    comm.broadcast(std::as_writable_bytes(std::span(id.bytes)), 0);
    comm::NcclConfig config;
    settle(nccl.comm_init_rank_config(&communicator_, comm.size(), id, comm.rank(), &config), awaited);
    watch_->add(comm, communicator_);
}

NcclCollectives::~NcclCollectives() {
    settle(nccl_->comm_finalize(communicator_), {"the other ranks", {}, "end of NCCL"});
    watch_->remove(communicator_);
    static_cast<void>(nccl_->comm_destroy(communicator_));
}

void NcclCollectives::settle(NcclResult asked, const comm::Awaited& awaited) {
    NcclResult state = asked;
    const auto is_settled = [&] {
        const NcclResult told = nccl_->comm_get_async_error(communicator_, &state);
        if (told != NcclResult::kSuccess) state = told;
        return state != NcclResult::kInProgress;
    };
    constexpr int kAskedAtOnce = 1000;  // most is done in microseconds
    for (int i = 0; i < kAskedAtOnce && state == NcclResult::kInProgress; ++i) is_settled();
    if (state == NcclResult::kInProgress) comm_->wait_until(is_settled, awaited);
    if (state != NcclResult::kSuccess) watch_->end_run(*comm_, communicator_, state, awaited);
}

NcclCollectives::Slot& NcclCollectives::claim_slot() {
    const auto free = std::ranges::find(slots_, false, &Slot::is_busy);
    check(free != slots_.end(), "too many transfers are under way");
    *free = Slot{};
    free->is_busy = true;
    return *free;
}

NcclCollectives::Slot& NcclCollectives::start(const comm::Awaited& awaited, std::string_view collective,
                                              const std::function<NcclResult()>& ask) {
    Slot& slot = claim_slot();
    const comm::Awaited of_transfer{awaited.what, awaited.unit, collective};
    backend_->wait(stream_.stream, backend_->record(Stream::kCompute));
    settle(ask(), of_transfer);
    slot.ended = backend_->record(stream_.stream);
    watch_->note_end(slot.ended, of_transfer);
    return slot;
}

Collectives::Transfer NcclCollectives::start_all_gather(const Tensor& shard, const Tensor& whole, const GatherSpaces&,
                                                        const Tensor&, const comm::Awaited& awaited) {
    check(shard.byte_count() * size() == whole.byte_count(), "all_gather: the lengths differ");
    return transfer_of(start(awaited, "all-gather", [&] {
        return nccl_->all_gather(shard.data(), whole.data(), bytes(shard), NcclType::kUint8, communicator_,
                                 stream_.handle);
    }));
}

Collectives::Transfer NcclCollectives::start_copy_in(const Tensor& pinned, const Tensor& on_device) {
    Slot& slot = claim_slot();
    slot.ended = copy_in(*backend_, pinned, on_device);
    return transfer_of(slot);
}

Collectives::Transfer NcclCollectives::start_all_to_all(const Tensor& whole, const Tensor& parts, const Tensor&,
                                                        const comm::Awaited& awaited) {
    check(whole.byte_count() == parts.byte_count(), "all_to_all: the lengths differ");
    return transfer_of(start(awaited, "all-to-all", [&] { return ask_all_to_all(whole, parts); }));
}

NcclResult NcclCollectives::ask_all_to_all(const Tensor& whole, const Tensor& parts) const {
    const std::size_t part = bytes(whole) / static_cast<std::size_t>(size());
    const auto* from = static_cast<const std::byte*>(whole.data());
    auto* to = static_cast<std::byte*>(parts.data());
    static_cast<void>(nccl_->group_start());  // the end has the errors of all that is between
    for (int rank = 0; rank < size(); ++rank, from += part, to += part) {
        static_cast<void>(nccl_->send(from, part, NcclType::kUint8, rank, communicator_, stream_.handle));
        static_cast<void>(nccl_->recv(to, part, NcclType::kUint8, rank, communicator_, stream_.handle));
    }
    return nccl_->group_end();
}

// What is sent is rounded where that has another format, and what arrives is widened once kCompute may use it.
Collectives::Transfer NcclCollectives::start_reduce_scatter(const Tensor& whole, const Tensor& shard,
                                                            const ReduceMemory& memory, const comm::Awaited& awaited) {
    const std::int64_t part = shard.element_count();
    check(part * size() == whole.element_count(), "reduce_scatter: the lengths differ");
    Tensor sent = whole;
    if (memory.scratch.element_count() > 0) {
        sent = flat_range(memory.scratch, 0, whole.element_count());
        backend_->convert(whole, sent);
    }
    const bool is_exact = shard.dtype() == sent.dtype();
    const Tensor received = is_exact ? shard : flat_range(sent, rank() * part, part);
    Slot& slot = start(awaited, "reduce-scatter", [&] {
        return nccl_->reduce_scatter(sent.data(), received.data(), elements(received), type_of(sent.dtype()),
                                     comm::NcclOperation::kSum, communicator_, stream_.handle);
    });
    if (!is_exact) {
        slot.rounded = received;
        slot.exact = shard;
    }
    return transfer_of(slot);
}

void NcclCollectives::all_reduce(const Tensor& few, const Tensor&) {
    const comm::Awaited awaited{"the sums of a step", {}, {}};
    wait(transfer_of(start(awaited, "all-reduce", [&] {
        return nccl_->all_reduce(few.data(), few.data(), elements(few), type_of(few.dtype()), comm::NcclOperation::kSum,
                                 communicator_, stream_.handle);
    })));
}

void NcclCollectives::wait(Transfer transfer) {
    if (transfer.slot < 0) return;
    Slot& slot = slots_[static_cast<std::size_t>(transfer.slot)];
    check(std::exchange(slot.is_busy, false), "a transfer was waited for twice");
    backend_->wait(Stream::kCompute, slot.ended);
    if (!slot.exact.empty()) backend_->convert(slot.rounded, slot.exact);
}

std::unique_ptr<Collectives> NcclLibrary::make_group(comm::Comm& ranks) const {
    if (ranks.size() == 1) return std::make_unique<MpiCollectives>(ranks, *backend_);  // nothing is exchanged
    return std::make_unique<NcclCollectives>(ranks, *backend_, *nccl_, watch_);
}

ExchangeLibrary::ReduceNeed NcclLibrary::reduce_need(const Reduction& reduction) const {
    const bool rounds = reduction.ranks > 1 && reduction.format != reduction.travels;
    return {.scratch = rounds ? reduction.elements : 0};
}

}  // namespace atl::parallel
