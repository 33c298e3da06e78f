#include "trainer/parallel/mpi_collectives.h"

#include <algorithm>
#include <utility>

namespace atl::parallel {

using comm::Parts;
using kernels::Space;
using kernels::Stream;

MpiCollectives::MpiCollectives(comm::Comm& comm, kernels::Backend& backend) : comm_(&comm), backend_(&backend) {
    if (comm.size() == 1) return;
    nodes_ = comm::split_by_node(comm);
    reductions_.emplace(comm, nodes_ ? &*nodes_ : nullptr, backend);
}

MpiCollectives::Slot& MpiCollectives::claim_slot(Kind kind, const comm::Awaited& awaited, std::string_view collective) {
    const auto free = std::ranges::find(slots_, Kind::kFree, &Slot::kind);
    check(free != slots_.end(), "too many transfers are under way");
    free->kind = kind;
    free->awaited = {awaited.what, awaited.unit, collective};
    return *free;
}

Collectives::Transfer MpiCollectives::start_all_gather(const Tensor& shard, const Tensor& whole,
                                                       const GatherSpaces& spaces, const Tensor& pinned,
                                                       const comm::Awaited& awaited) {
    check(shard.byte_count() * size() == whole.byte_count(), "all_gather: the lengths differ");
    if (size() == 1) return copy_alone(shard, whole);
    Slot& slot = claim_slot(Kind::kExchange, awaited, "all-gather");
    slot.to = whole;
    slot.to_space = spaces.whole;
    slot.staging = Staging(*backend_, pinned, awaited.unit);
    const std::span<const std::byte> sent = slot.staging.leave_device(shard, spaces.shard);
    std::span<std::byte> received = slot.staging.landing(slot.to, slot.to_space);
    slot.group = comm_;
    Parts parts = Parts::one_after_another(sent.size());
    if (nodes_) {
        slot.group = nodes_->across_nodes.get();
        slot.is_first_step = true;
        first_steps_.push_back(&slot);
        parts = {sent.size(), static_cast<std::size_t>(nodes_->on_node->size()) * sent.size()};
        received = received.subspan(static_cast<std::size_t>(nodes_->on_node->rank()) * sent.size(),
                                    parts.whole_bytes(slot.group->size()));
    }
    slot.transfer = slot.group->start_all_gather(sent, received, parts);
    return transfer_of(slot);
}

// What this machine's ranks have received lies apart by machines.
void MpiCollectives::gather_on_node() {
    Slot& slot = *first_steps_.front();
    first_steps_.erase(first_steps_.begin());
    slot.group->wait(slot.transfer, slot.awaited);
    slot.is_first_step = false;
    slot.group = nodes_->on_node.get();
    const std::span<std::byte> received = slot.staging.landing(slot.to, slot.to_space);
    const std::size_t bytes = received.size() / static_cast<std::size_t>(size());
    const auto ranks_on_node = static_cast<std::size_t>(nodes_->on_node->size());
    const Parts parts{bytes, bytes, static_cast<std::size_t>(nodes_->across_nodes->size()), ranks_on_node * bytes};
    slot.transfer = slot.group->start_all_gather({}, received, parts);
}

Collectives::Transfer MpiCollectives::start_copy_in(const Tensor& pinned, const Tensor& on_device) {
    Slot& slot = claim_slot(Kind::kCopyIn, {}, {});
    slot.copied = copy_in(*backend_, pinned, on_device);
    return transfer_of(slot);
}

Collectives::Transfer MpiCollectives::start_all_to_all(const Tensor& whole, const Tensor& parts, const Tensor& pinned,
                                                       const comm::Awaited& awaited) {
    check(whole.byte_count() == parts.byte_count(), "all_to_all: the lengths differ");
    if (size() == 1) return copy_alone(whole, parts);
    Slot& slot = claim_slot(Kind::kExchange, awaited, "all-to-all");
    slot.to = parts;
    slot.to_space = Space::kDevice;
    slot.staging = Staging(*backend_, pinned, awaited.unit);
    const std::span<const std::byte> sent = slot.staging.leave_device(whole);
    slot.group = comm_;
    slot.transfer = slot.group->start_all_to_all(sent, slot.staging.landing(slot.to));
    return transfer_of(slot);
}

Collectives::Transfer MpiCollectives::start_reduce_scatter(const Tensor& whole, const Tensor& shard,
                                                           const ReduceMemory& memory, const comm::Awaited& awaited) {
    check(shard.element_count() * size() == whole.element_count(), "reduce_scatter: the lengths differ");
    if (size() == 1) return copy_alone(whole, shard);
    Slot& slot = claim_slot(Kind::kReduction, awaited, "reduce-scatter");
    slot.reduction.whole = whole;
    slot.reduction.shard = shard;
    slot.reduction.scratch = memory.scratch;
    slot.reduction.awaited = slot.awaited;
    slot.reduction.staging = Staging(*backend_, memory.pinned, awaited.unit);
    reductions_->start(slot.reduction);
    return transfer_of(slot);
}

Collectives::Transfer MpiCollectives::copy_alone(const Tensor& from, const Tensor& to) {
    if (from.data() != to.data()) backend_->copy(from, to);
    return {};
}

void MpiCollectives::all_reduce(const Tensor& few, const Tensor& pinned) {
    if (size() == 1) return;
    backend_->wait(Stream::kOut, backend_->record(Stream::kCompute));
    backend_->transfer(Stream::kOut, few, pinned);
    backend_->wait_on_host(backend_->record(Stream::kOut), "the sums of a step");
    comm_->all_reduce({reinterpret_cast<double*>(pinned.data()), static_cast<std::size_t>(few.element_count())},
                      comm::Reduction::kSum);
    backend_->transfer(Stream::kIn, pinned, few);
    backend_->wait(Stream::kCompute, backend_->record(Stream::kIn));
}

void MpiCollectives::wait(Transfer transfer) {
    if (transfer.slot < 0) return;
    Slot& slot = slots_[static_cast<std::size_t>(transfer.slot)];
    const Kind kind = std::exchange(slot.kind, Kind::kFree);
    check(kind != Kind::kFree, "a transfer was waited for twice");
    if (kind == Kind::kReduction) return reductions_->finish(slot.reduction);
    if (kind == Kind::kCopyIn) return backend_->wait(Stream::kCompute, slot.copied);
    while (slot.is_first_step) gather_on_node();
    slot.group->wait(slot.transfer, slot.awaited);
    slot.staging.receive(slot.to, slot.to_space);
}

void MpiCollectives::progress() {
    comm_->progress();
    if (nodes_) {
        nodes_->on_node->progress();
        nodes_->across_nodes->progress();
    }
    while (!first_steps_.empty() && first_steps_.front()->group->is_done(first_steps_.front()->transfer))
        gather_on_node();
    if (reductions_) reductions_->progress();
}

std::unique_ptr<Collectives> MpiLibrary::make_group(comm::Comm& ranks) const {
    return std::make_unique<MpiCollectives>(ranks, *backend_);
}

std::int64_t MpiLibrary::gather_bytes(int ranks, std::int64_t shard_bytes, const GatherSpaces& spaces) const {
    if (ranks == 1) return 0;
    return Staging::need_bytes(*backend_, shard_bytes, spaces.shard) +
           Staging::need_bytes(*backend_, ranks * shard_bytes, spaces.whole);
}

std::int64_t MpiLibrary::all_to_all_bytes(int ranks, std::int64_t whole_bytes) const {
    return ranks == 1 ? 0 : 2 * Staging::need_bytes(*backend_, whole_bytes);
}

ExchangeLibrary::ReduceNeed MpiLibrary::reduce_need(const Reduction& reduction) const {
    if (reduction.ranks == 1) return {};
    const std::int64_t at_once = std::min(reduction.elements, reduction.elements_max);
    return {.scratch = (reduction.format == reduction.travels ? 1 : 2) * at_once,
            .pinned_bytes = 2 * Staging::need_bytes(*backend_, tensor::size_bytes(reduction.travels, at_once))};
}

}  // namespace atl::parallel
