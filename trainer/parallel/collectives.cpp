#include "trainer/parallel/collectives.h"

#include <algorithm>
#include <bit>

#include "trainer/parallel/sharding.h"

namespace atl::parallel {
namespace {

using comm::Parts;
using kernels::Space;
using kernels::Stream;

// `bytes` a rank, of all ranks one after another, as parts of the groups of which they are cut: those of this machine's
// ranks lie apart by machines, and those of ranks in the same place of each by the ranks of one.
Parts parts_on_node(const comm::NodeGroups& groups, std::size_t bytes) {
    const auto ranks = static_cast<std::size_t>(groups.on_node->size());
    return {bytes, bytes, static_cast<std::size_t>(groups.across_nodes->size()), ranks * bytes};
}

Parts parts_across_nodes(const comm::NodeGroups& groups, std::size_t bytes) {
    return {bytes, static_cast<std::size_t>(groups.on_node->size()) * bytes};
}

}  // namespace

Collectives::Collectives(comm::Comm& comm, kernels::Backend& backend) : comm_(&comm), backend_(&backend) {
    if (comm.size() == 1) return;
    gathers_.groups = comm::split_by_node(comm);
    if (gathers_.groups && std::has_single_bit(static_cast<unsigned>(gathers_.groups->on_node->size())))
        reductions_.groups = comm::split_by_node(comm);
    pieces_.emplace(comm, reductions_.groups ? &*reductions_.groups : nullptr, backend);
}

Collectives::Slot& Collectives::claim_slot(const Tensor& to, const Tensor& sum, const comm::Awaited& awaited,
                                           std::string_view collective) {
    const auto free = std::ranges::find(slots_, false, &Slot::is_busy);
    check(free != slots_.end(), "too many transfers are under way");
    free->is_busy = true;
    free->group = comm_;
    free->to = to;
    free->to_space = Space::kDevice;
    free->sum = sum;
    free->awaited = {awaited.what, awaited.unit, collective};
    return *free;
}

Collectives::Transfer Collectives::start_all_gather(const Tensor& shard, const Tensor& whole,
                                                    const comm::Awaited& awaited, const GatherSpaces& spaces) {
    check(shard.byte_count() * size() == whole.byte_count(), "all_gather: the lengths differ");
    if (size() == 1) return copy_alone(shard, whole);
    Slot& slot = claim_slot(whole, {}, awaited, "all-gather");
    slot.to_space = spaces.whole;
    const std::span<const std::byte> sent = slot.staging.leave_device(*backend_, shard, spaces.shard);
    std::span<std::byte> received = slot.staging.landing(*backend_, slot.to, slot.to_space);
    Parts parts = Parts::one_after_another(sent.size());
    if (gathers_.groups) {
        slot.group = gathers_.groups->across_nodes.get();
        begin_first_step(gathers_, slot);
        parts = parts_across_nodes(*gathers_.groups, sent.size());
        received = received.subspan(static_cast<std::size_t>(gathers_.groups->on_node->rank()) * sent.size(),
                                    parts.whole_bytes(slot.group->size()));
    }
    slot.transfer = slot.group->start_all_gather(sent, received, parts);
    return transfer_of(slot);
}

void Collectives::gather_on_node(Slot& slot) {
    const std::span<std::byte> received = slot.staging.landing(*backend_, slot.to, slot.to_space);
    slot.group = gathers_.groups->on_node.get();
    slot.transfer = slot.group->start_all_gather(
        {}, received, parts_on_node(*gathers_.groups, received.size() / static_cast<std::size_t>(size())));
}

// What the device was asked for before may read the place or write what is copied.
Collectives::Transfer Collectives::start_copy_in(const Tensor& pinned, const Tensor& on_device) {
    check(pinned.byte_count() == on_device.byte_count(), "copy_in: the lengths differ");
    Slot& slot = claim_slot(on_device, {}, {}, {});
    slot.group = nullptr;
    backend_->wait(Stream::kIn, backend_->record(Stream::kCompute));
    backend_->transfer(Stream::kIn, pinned, on_device);
    slot.copied = backend_->record(Stream::kIn);
    return transfer_of(slot);
}

Collectives::Transfer Collectives::start_all_to_all(const Tensor& whole, const Tensor& parts,
                                                    const comm::Awaited& awaited) {
    check(whole.byte_count() == parts.byte_count(), "all_to_all: the lengths differ");
    if (size() == 1) return copy_alone(whole, parts);
    Slot& slot = claim_slot(parts, {}, awaited, "all-to-all");
    exchange(slot, whole, Parts::one_after_another(static_cast<std::size_t>(whole.byte_count() / size())));
    return transfer_of(slot);
}

Collectives::Transfer Collectives::start_reduce_scatter(const Tensor& whole, const Tensor& shard, const Tensor& scratch,
                                                        const comm::Awaited& awaited) {
    check(shard.element_count() * size() == whole.element_count(), "reduce_scatter: the lengths differ");
    if (size() == 1) return copy_alone(whole, shard);
    const std::int64_t count = whole.element_count();
    if (scratch.element_count() < (scratch.dtype() == whole.dtype() ? count : 2 * count)) {
        Slot& large = claim_slot({}, {}, awaited, "reduce-scatter");
        large.in_pieces.whole = whole;
        large.in_pieces.shard = shard;
        large.in_pieces.scratch = scratch;
        large.in_pieces.awaited = large.awaited;
        pieces_->start(large.in_pieces);
        return transfer_of(large);
    }
    Slot& slot = claim_slot(flat_range(scratch, 0, count), shard, awaited, "reduce-scatter");
    slot.rounded = scratch.dtype() == whole.dtype() ? Tensor() : flat_range(scratch, count, count);
    if (!slot.rounded.empty()) backend_->convert(whole, slot.rounded);
    const Tensor& sent = slot.rounded.empty() ? whole : slot.rounded;
    const auto part_bytes = static_cast<std::size_t>(sent.byte_count() / size());
    if (!reductions_.groups) {
        exchange(slot, sent, Parts::one_after_another(part_bytes));
        return transfer_of(slot);
    }
    slot.group = reductions_.groups->on_node.get();
    slot.sum = flat_range(whole, 0, count / slot.group->size());
    slot.shard = shard;
    begin_first_step(reductions_, slot);
    exchange(slot, sent, parts_on_node(*reductions_.groups, part_bytes));
    return transfer_of(slot);
}

void Collectives::reduce_across_nodes(Slot& slot) {
    slot.staging.receive(*backend_, slot.to, slot.to_space);
    backend_->sum_pieces(slot.to, slot.sum);
    const std::int64_t count = slot.sum.element_count();
    const Tensor sent = slot.rounded.empty() ? slot.sum : flat_range(slot.rounded, 0, count);
    if (!slot.rounded.empty()) backend_->convert(slot.sum, sent);
    slot.group = reductions_.groups->across_nodes.get();
    slot.to = flat_range(slot.to, 0, count);
    slot.sum = slot.shard;
    exchange(slot, sent, Parts::one_after_another(static_cast<std::size_t>(sent.byte_count() / slot.group->size())));
}

Collectives::Transfer Collectives::copy_alone(const Tensor& from, const Tensor& to) {
    if (from.data() != to.data()) backend_->copy(from, to);
    return {};
}

void Collectives::exchange(Slot& slot, const Tensor& from, const Parts& parts) {
    const std::span<const std::byte> sent = slot.staging.leave_device(*backend_, from);
    slot.transfer = slot.group->start_all_to_all(sent, parts, slot.staging.landing(*backend_, slot.to, slot.to_space));
}

void Collectives::begin_first_step(TwoSteps& kind, Slot& slot) {
    slot.is_first_step = true;
    kind.first_steps.push_back(&slot);
}

void Collectives::begin_second_step(TwoSteps& kind) {
    Slot& slot = *kind.first_steps.front();
    kind.first_steps.erase(kind.first_steps.begin());
    slot.group->wait(slot.transfer, slot.awaited);
    slot.is_first_step = false;
    &kind == &gathers_ ? gather_on_node(slot) : reduce_across_nodes(slot);
}

void Collectives::all_reduce(const Tensor& few) {
    if (size() == 1) return;
    const auto count = static_cast<std::size_t>(few.element_count());
    const std::span<const std::byte> mine = few_.leave_device(*backend_, few);
    const std::span<std::byte> sums = few_.landing(*backend_, few);
    if (sums.data() != mine.data()) std::ranges::copy(mine, sums.begin());
    comm_->all_reduce({reinterpret_cast<double*>(sums.data()), count}, comm::Reduction::kSum);
    few_.receive(*backend_, few);
}

void Collectives::wait(Transfer transfer) {
    if (transfer.slot < 0) return;
    Slot& slot = slots_[static_cast<std::size_t>(transfer.slot)];
    check(slot.is_busy, "a transfer was waited for twice");
    if (!slot.in_pieces.whole.empty()) {
        pieces_->finish(slot.in_pieces);
        slot.in_pieces.whole = {};
        slot.is_busy = false;
        return;
    }
    if (slot.group == nullptr) {
        slot.is_busy = false;
        return backend_->wait(Stream::kCompute, slot.copied);
    }
    while (slot.is_first_step) begin_second_step(slot.sum.empty() ? gathers_ : reductions_);
    slot.group->wait(slot.transfer, slot.awaited);
    slot.staging.receive(*backend_, slot.to, slot.to_space);
    if (!slot.sum.empty()) backend_->sum_pieces(slot.to, slot.sum);
    slot.is_busy = false;
}

void Collectives::progress() {
    comm_->progress();
    for (TwoSteps* kind : {&gathers_, &reductions_}) {
        if (!kind->groups) continue;
        kind->groups->on_node->progress();
        kind->groups->across_nodes->progress();
        while (!kind->first_steps.empty()) {
            const Slot& oldest = *kind->first_steps.front();
            if (!oldest.group->is_done(oldest.transfer)) break;
            begin_second_step(*kind);
        }
    }
    if (pieces_) pieces_->progress();
}

}  // namespace atl::parallel
