#include "trainer/parallel/parameter_gather.h"

#include <algorithm>
#include <utility>

#include "trainer/trace/trace.h"

namespace atl::parallel {
namespace {

// How many bytes a unit takes of a buffer that several units share.
std::int64_t room(const ParameterStore& store, std::size_t unit) {
    return tensor::aligned(tensor::size_bytes(store.storage(unit), store.shard_spec(unit).whole));
}

std::int64_t pinned_bytes(const ExchangeLibrary& library, const ParameterStore& store, std::size_t unit) {
    if (!shards_weights(store.sharding())) return 0;
    return library.gather_bytes(store.layout().shard_ranks(), store.weights(unit).byte_count(),
                                {.shard = store.weights_space()});
}

}  // namespace

ParameterGather ParameterGather::lay_out(const Arenas& arenas, const ParameterStore& store) {
    ParameterGather gather;
    gather.store_ = &store;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit)
        gather.pinned_bytes_.push_back(pinned_bytes(arenas.library, store, unit));
    const bool lends_copies = shards_weights(store.sharding()) || store.weights_space() == kernels::Space::kPinned;
    std::vector<std::int64_t> sizes, pinned;
    std::size_t groups_max = 0;
    for (const auto& block : store.model().blocks) {
        std::int64_t size = 0, of_gathers = 0;
        std::vector<Tensor> resident;
        for (const std::size_t unit : block->units()) {
            size += room(store, unit);
            of_gathers += gather.pinned_bytes_[unit];
            resident.push_back(store.weights(unit));
        }
        sizes.push_back(size);
        pinned.push_back(of_gathers);
        groups_max = std::max(groups_max, resident.size());
        if (!lends_copies) gather.resident_.push_back(std::move(resident));
    }
    if (!lends_copies) return gather;
    constexpr auto kGather = tensor::Category::kGather;
    gather.buffer_ = TwoEndedBuffer::lay_out(arenas.device, kGather, tensor::DType::kU8, std::move(sizes));
    gather.pinned_ = TwoEndedBuffer::lay_out(arenas.pinned, kGather, tensor::DType::kU8, std::move(pinned));
    for (Slot& slot : gather.slots_) {
        slot.weights.reserve(groups_max);
        slot.transfers.reserve(groups_max);
    }
    return gather;
}

ParameterGather::Slot* ParameterGather::find(std::size_t block) {
    const auto found = std::ranges::find(slots_, block, &Slot::block);
    return found == slots_.end() ? nullptr : &*found;
}

void ParameterGather::begin(Collectives& ranks, Slot& slot, std::size_t block) {
    const bool is_front = &slot == slots_.data();
    Slot& other = slots_[is_front ? 1 : 0];
    finish(ranks, slot);
    if (other.block != kNoBlock &&
        !(buffer_.holds_both(block, other.block) && pinned_.holds_both(block, other.block))) {
        finish(ranks, other);
        other.block = kNoBlock;
    }
    slot.block = block;
    slot.weights.clear();
    const auto end = is_front ? TwoEndedBuffer::End::kFront : TwoEndedBuffer::End::kBack;
    const Tensor room_of_block = buffer_.at(end, block), pinned = pinned_.at(end, block);
    std::int64_t at = 0, pinned_at = 0;
    for (const std::size_t unit : store_->model().blocks[block]->units()) {
        const std::string& name = store_->model().units[unit].name;
        const Tensor whole(room_of_block.at(at), store_->storage(unit), {store_->shard_spec(unit).whole});
        slot.transfers.push_back(start(ranks, unit, whole, flat_range(pinned, pinned_at, pinned_bytes_[unit])));
        trace::begin_transfer("gather", name, unit);
        slot.weights.push_back(whole);
        at += room(*store_, unit);
        pinned_at += pinned_bytes_[unit];
    }
}

Collectives::Transfer ParameterGather::start(Collectives& ranks, std::size_t unit, const Tensor& whole,
                                             const Tensor& pinned) const {
    const Tensor& kept = store_->weights(unit);
    if (!shards_weights(store_->sharding())) return ranks.start_copy_in(kept, whole);
    return ranks.start_all_gather(kept, whole, {.shard = store_->weights_space()}, pinned,
                                  {"the weights", store_->model().units[unit].name});
}

void ParameterGather::finish(Collectives& ranks, Slot& slot) const {
    if (slot.transfers.empty()) return;
    const model::Block& block = *store_->model().blocks[slot.block];
    const trace::Span span("wait for gather", block.name());
    const trace::StreamSpan of_device(kernels::Stream::kCompute, "wait for gather", block.name());
    for (std::size_t i = 0; i < slot.transfers.size(); ++i) {
        ranks.wait(slot.transfers[i]);
        trace::end_transfer("gather", block.units()[i]);
    }
    slot.transfers.clear();
}

std::span<const Tensor> ParameterGather::acquire(Collectives& ranks, std::size_t block) {
    if (!resident_.empty()) return resident_[block];
    Slot* slot = find(block);
    if (slot == nullptr) {
        slot = &slots_[1 - last_];
        begin(ranks, *slot, block);
    }
    finish(ranks, *slot);
    last_ = static_cast<std::size_t>(slot - slots_.data());
    return slot->weights;
}

void ParameterGather::prefetch(Collectives& ranks, std::size_t block) {
    if (!resident_.empty() || find(block) != nullptr) return;
    begin(ranks, slots_[1 - last_], block);
}

void ParameterGather::invalidate() {
    for (Slot& slot : slots_) {
        check(slot.transfers.empty(), "weights changed while they were being gathered");
        slot.block = kNoBlock;
    }
}

}  // namespace atl::parallel
