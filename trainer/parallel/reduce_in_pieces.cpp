#include "trainer/parallel/reduce_in_pieces.h"

#include <algorithm>
#include <bit>

#include "trainer/parallel/sharding.h"

namespace atl::parallel {
namespace {

using comm::Parts;
using tensor::DType;
using tensor::Tensor;

constexpr std::int64_t kPieceAlignment = 64;  // elements: whole cache lines in every format

}  // namespace

ReduceInPieces::ReduceInPieces(comm::Comm& comm, const comm::NodeGroups* nodes, kernels::Backend& backend)
    : backend_(&backend), ranks_(comm.size()) {
    const bool is_two_steps = nodes != nullptr && std::has_single_bit(static_cast<unsigned>(nodes->on_node->size()));
    for (Lane& lane : lanes_) {
        if (is_two_steps) {
            lane.nodes = {nodes->on_node->split(0, nodes->on_node->rank()),
                          nodes->across_nodes->split(0, nodes->across_nodes->rank())};
        } else {
            lane.ranks = comm.split(0, comm.rank());
        }
    }
}

// The scratch holds what arrives and, where that is rounded, what is sent: as many elements as a piece has on all
// ranks. In several pieces the sum over a machine's ranks is there, too: half as many at most, in fp32.
std::int64_t ReduceInPieces::piece_max(const Reduction& reduction) const {
    const std::int64_t elements = reduction.scratch.element_count(), copies = rounds(reduction) ? 2 : 1;
    if (elements / copies >= reduction.whole.element_count()) return reduction.shard.element_count();
    const std::int64_t halves_summed =
        reduction.lane->nodes ? tensor::size_bytes(DType::kF32, 1) / tensor::size_bytes(reduction.scratch.dtype(), 1)
                              : 0;
    const std::int64_t of_ranks = 2 * elements / (2 * copies + halves_summed);
    const std::int64_t piece = of_ranks / ranks_ / kPieceAlignment * kPieceAlignment;
    check(piece > 0, "reduce_scatter: the scratch is too small for a piece");
    return piece;
}

ReduceInPieces::Scratch ReduceInPieces::scratch_of(const Reduction& reduction) const {
    const std::int64_t of_ranks = ranks_ * reduction.piece;
    Scratch scratch{.arrives = flat_range(reduction.scratch, 0, of_ranks), .rounded = {}, .summed = {}};
    if (rounds(reduction)) scratch.rounded = flat_range(reduction.scratch, of_ranks, of_ranks);
    if (!reduction.lane->nodes) return scratch;
    const std::int64_t count = of_ranks / reduction.lane->nodes->on_node->size();
    if (reduction.piece == reduction.shard.element_count()) {  // all has left it by then
        scratch.summed = Tensor(reduction.whole.data(), DType::kF32, {count});
    } else {
        const std::int64_t begin = (rounds(reduction) ? 2 : 1) * of_ranks;
        scratch.summed = Tensor(reduction.scratch.at(begin), DType::kF32, {count});
    }
    return scratch;
}

void ReduceInPieces::start(Reduction& reduction) {
    reduction.done = 0;
    reduction.lane = &lanes_[next_lane_++ % kLanes];
    reduction.lane->under_way.push_back(&reduction);
    if (reduction.lane->under_way.size() == 1) begin_piece(reduction);
}

std::span<const std::byte> ReduceInPieces::leave_device(Reduction& reduction, const Tensor& rounded) {
    if (!rounds(reduction))
        return reduction.staging.leave_device(reduction.whole, ranks_, reduction.done, reduction.piece);
    const std::int64_t part = reduction.shard.element_count();
    for (int rank = 0; rank < ranks_; ++rank) {
        backend_->convert(flat_range(reduction.whole, rank * part + reduction.done, reduction.piece),
                          flat_range(rounded, rank * reduction.piece, reduction.piece));
    }
    return reduction.staging.leave_device(rounded);
}

void ReduceInPieces::begin_piece(Reduction& reduction) {
    const std::int64_t part = reduction.shard.element_count();
    reduction.piece = std::min(piece_max(reduction), part - reduction.done);
    const Scratch scratch = scratch_of(reduction);
    const bool is_packed = rounds(reduction) || !backend_->host_reaches_device();
    const std::span<const std::byte> sent = leave_device(reduction, scratch.rounded);
    const auto bytes = static_cast<std::size_t>(tensor::size_bytes(reduction.scratch.dtype(), reduction.piece));
    const auto stride =
        static_cast<std::size_t>(tensor::size_bytes(reduction.scratch.dtype(), is_packed ? reduction.piece : part));
    const Lane& lane = *reduction.lane;
    reduction.is_across_nodes = false;
    reduction.group = lane.nodes ? lane.nodes->on_node.get() : lane.ranks.get();
    const Parts parts = lane.nodes ? Parts{bytes, stride, static_cast<std::size_t>(lane.nodes->across_nodes->size()),
                                           static_cast<std::size_t>(lane.nodes->on_node->size()) * stride}
                                   : Parts{bytes, stride};
    reduction.transfer = reduction.group->start_all_to_all(sent, parts, reduction.staging.landing(scratch.arrives));
}

void ReduceInPieces::begin_second_step(Reduction& reduction) {
    const Scratch scratch = scratch_of(reduction);
    const std::int64_t count = scratch.summed.element_count();
    backend_->sum_pieces(scratch.arrives, scratch.summed);
    Tensor sent = scratch.summed;
    if (sent.dtype() != reduction.scratch.dtype()) {
        sent = flat_range(scratch.arrives, count, count);  // beside what arrives next
        backend_->convert(scratch.summed, sent);
    }
    reduction.is_across_nodes = true;
    reduction.group = reduction.lane->nodes->across_nodes.get();
    const auto bytes = static_cast<std::size_t>(tensor::size_bytes(sent.dtype(), reduction.piece));
    const std::span<const std::byte> leaving = reduction.staging.leave_device(sent);
    reduction.transfer = reduction.group->start_all_to_all(
        leaving, Parts::one_after_another(bytes), reduction.staging.landing(flat_range(scratch.arrives, 0, count)));
}

void ReduceInPieces::advance(Lane& lane) {
    Reduction& reduction = *lane.under_way.front();
    reduction.group->wait(reduction.transfer, reduction.awaited);
    const Scratch scratch = scratch_of(reduction);
    const Tensor arrived =
        reduction.is_across_nodes ? flat_range(scratch.arrives, 0, scratch.summed.element_count()) : scratch.arrives;
    reduction.staging.receive(arrived);
    if (lane.nodes && !reduction.is_across_nodes) return begin_second_step(reduction);
    backend_->sum_pieces(arrived, flat_range(reduction.shard, reduction.done, reduction.piece));
    reduction.done += reduction.piece;
    if (reduction.done < reduction.shard.element_count()) return begin_piece(reduction);
    lane.under_way.pop_front();
    if (!lane.under_way.empty()) begin_piece(*lane.under_way.front());
}

void ReduceInPieces::finish(Reduction& reduction) {
    while (reduction.done < reduction.shard.element_count()) advance(*reduction.lane);
}

void ReduceInPieces::progress() {
    for (Lane& lane : lanes_) {
        while (!lane.under_way.empty()) {
            const Reduction& oldest = *lane.under_way.front();
            oldest.group->progress();
            if (!oldest.group->is_done(oldest.transfer)) break;
            advance(lane);
        }
    }
}

}  // namespace atl::parallel
