#include "trainer/parallel/collectives.h"

#include <algorithm>

#include "trainer/parallel/sharding.h"

namespace atl::parallel {
namespace {

using kernels::Space;
using kernels::Stream;

// Bytes of pinned memory in the place of a tensor.
Tensor as_bytes(const tensor::Memory& memory, std::int64_t count) {
    return {memory.data(), tensor::DType::kU8, {count}};
}

Tensor as_bytes(const Tensor& tensor) {
    return {tensor.data(), tensor::DType::kU8, {tensor.byte_count()}};
}

void make_room(kernels::Backend& backend, tensor::Memory& memory, std::int64_t bytes) {
    if (memory.size_bytes() >= bytes) return;
    memory.reset();
    auto larger = backend.allocate(Space::kPinned, bytes);
    check(larger.ok(), "no pinned memory for an exchange between ranks");
    memory = std::move(larger).value();
}

}  // namespace

Collectives::Transfer Collectives::start_all_gather(const Tensor& shard, const Tensor& whole) {
    check(shard.byte_count() * size() == whole.byte_count(), "all_gather: the lengths differ");
    return start(&comm::Comm::start_all_gather, shard, whole, {});
}

Collectives::Transfer Collectives::start_all_to_all(const Tensor& whole, const Tensor& parts) {
    check(whole.byte_count() == parts.byte_count(), "all_to_all: the lengths differ");
    return start(&comm::Comm::start_all_to_all, whole, parts, {});
}

Collectives::Transfer Collectives::start_reduce_scatter(const Tensor& whole, const Tensor& shard,
                                                        const Tensor& scratch) {
    check(shard.element_count() * size() == whole.element_count(), "reduce_scatter: the lengths differ");
    if (size() == 1) return start(&comm::Comm::start_all_to_all, whole, shard, {});
    const std::int64_t count = whole.element_count();
    const Tensor pieces = flat_range(scratch, 0, count);
    if (scratch.dtype() == whole.dtype()) return start(&comm::Comm::start_all_to_all, whole, pieces, shard);
    const Tensor rounded = flat_range(scratch, count, count);
    backend_->convert(whole, rounded);
    return start(&comm::Comm::start_all_to_all, rounded, pieces, shard);
}

Collectives::Transfer Collectives::start(Exchange exchange, const Tensor& from, const Tensor& to, const Tensor& sum) {
    if (size() == 1) {
        if (from.data() != to.data()) backend_->copy(from, to);
        return {};
    }
    const auto free = std::ranges::find(slots_, false, &Slot::is_busy);
    check(free != slots_.end(), "too many transfers are under way");
    free->is_busy = true;
    free->to = to;
    free->sum = sum;
    if (backend_->host_reaches_device()) {
        backend_->synchronize();
        free->transfer = (comm_->*exchange)(from.bytes(), to.bytes());
    } else {
        send_staged(*free, exchange, from);
    }
    return {static_cast<int>(free - slots_.begin())};
}

// Once what is sent has left, so has what the device was asked for before: nothing reads or writes any more what the
// transfer will bring, nor what an earlier one left in its buffer.
void Collectives::send_staged(Slot& slot, Exchange exchange, const Tensor& from) {
    const std::int64_t sent = from.byte_count(), received = slot.to.byte_count();
    make_room(*backend_, slot.sent, sent);
    backend_->wait(Stream::kOut, backend_->record(Stream::kCompute));
    backend_->transfer(Stream::kOut, as_bytes(from), as_bytes(slot.sent, sent));
    backend_->wait_on_host(backend_->record(Stream::kOut));
    make_room(*backend_, slot.received, received);
    slot.transfer = (comm_->*exchange)(as_bytes(slot.sent, sent).bytes(), as_bytes(slot.received, received).bytes());
}

void Collectives::receive_staged(const Slot& slot) {
    backend_->transfer(Stream::kIn, as_bytes(slot.received, slot.to.byte_count()), as_bytes(slot.to));
    backend_->wait(Stream::kCompute, backend_->record(Stream::kIn));
}

void Collectives::all_reduce(const Tensor& few) {
    if (size() == 1) return;
    const auto count = static_cast<std::size_t>(few.element_count());
    if (backend_->host_reaches_device()) {
        backend_->synchronize();
        return comm_->all_reduce({few.f64(), count}, comm::Reduction::kSum);
    }
    make_room(*backend_, few_, few.byte_count());
    const Tensor staged = few.at_address(few_.data());
    backend_->wait(Stream::kOut, backend_->record(Stream::kCompute));
    backend_->transfer(Stream::kOut, few, staged);
    backend_->wait_on_host(backend_->record(Stream::kOut));
    comm_->all_reduce({staged.f64(), count}, comm::Reduction::kSum);
    backend_->transfer(Stream::kIn, staged, few);
    backend_->wait(Stream::kCompute, backend_->record(Stream::kIn));
}

void Collectives::wait(Transfer transfer) {
    if (transfer.slot < 0) return;
    Slot& slot = slots_[static_cast<std::size_t>(transfer.slot)];
    check(slot.is_busy, "a transfer was waited for twice");
    comm_->wait(slot.transfer);
    if (!backend_->host_reaches_device()) receive_staged(slot);
    if (!slot.sum.empty()) backend_->sum_pieces(slot.to, slot.sum);
    slot.is_busy = false;
}

}  // namespace atl::parallel
