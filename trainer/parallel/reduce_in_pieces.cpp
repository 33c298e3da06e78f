#include "trainer/parallel/reduce_in_pieces.h"

#include <algorithm>

#include "trainer/parallel/sharding.h"

namespace atl::parallel {
namespace {

using comm::Parts;
using tensor::Tensor;

constexpr std::int64_t kPieceAlignment = 64;  // elements: whole cache lines in every format

}  // namespace

ReduceInPieces::ReduceInPieces(comm::Comm& comm, const comm::NodeGroups* nodes, kernels::Backend& backend)
    : backend_(&backend), ranks_(comm.size()), comm_(comm.split(0, comm.rank())) {
    if (nodes != nullptr) nodes_ = comm::split_by_node(*comm_);
}

// Of the scratch, what arrives and what is rounded take as many elements as a piece has on all ranks, and the sum over
// a machine's ranks half of what arrives at most, in the format of the whole.
std::int64_t ReduceInPieces::piece_max(const Reduction& reduction) const {
    const std::int64_t of_ranks = (rounds(reduction) ? 1 : 2) * reduction.scratch.element_count() / 3;
    const std::int64_t piece = of_ranks / ranks_ / kPieceAlignment * kPieceAlignment;
    check(piece > 0, "reduce_scatter: the scratch is too small for a piece");
    return piece;
}

ReduceInPieces::Scratch ReduceInPieces::scratch_of(const Reduction& reduction) const {
    const std::int64_t of_ranks = ranks_ * reduction.piece;
    Scratch scratch{.arrives = flat_range(reduction.scratch, 0, of_ranks), .rounded = {}, .summed = {}};
    if (rounds(reduction)) scratch.rounded = flat_range(reduction.scratch, of_ranks, of_ranks);
    if (!nodes_) return scratch;
    const std::int64_t begin = (rounds(reduction) ? 2 : 1) * of_ranks;
    scratch.summed = Tensor(reduction.scratch.at(begin), reduction.whole.dtype(), {of_ranks / nodes_->on_node->size()});
    return scratch;
}

void ReduceInPieces::start(Reduction& reduction) {
    reduction.done = 0;
    under_way_.push_back(&reduction);
    if (under_way_.size() == 1) begin_piece(reduction);
}

void ReduceInPieces::begin_piece(Reduction& reduction) {
    const std::int64_t part = reduction.shard.element_count();
    reduction.piece = std::min(piece_max(reduction), part - reduction.done);
    const Scratch scratch = scratch_of(reduction);
    const bool is_packed = rounds(reduction) || !backend_->host_reaches_device();
    for (int rank = 0; rounds(reduction) && rank < ranks_; ++rank) {
        backend_->convert(flat_range(reduction.whole, rank * part + reduction.done, reduction.piece),
                          flat_range(scratch.rounded, rank * reduction.piece, reduction.piece));
    }
    const std::span<const std::byte> sent =
        rounds(reduction)
            ? reduction.staging.leave_device(*backend_, scratch.rounded)
            : reduction.staging.leave_device(*backend_, reduction.whole, ranks_, reduction.done, reduction.piece);
    const auto bytes = static_cast<std::size_t>(tensor::size_bytes(reduction.scratch.dtype(), reduction.piece));
    const auto stride =
        static_cast<std::size_t>(tensor::size_bytes(reduction.scratch.dtype(), is_packed ? reduction.piece : part));
    reduction.is_across_nodes = false;
    reduction.group = nodes_ ? nodes_->on_node.get() : comm_.get();
    const Parts parts = nodes_ ? Parts{bytes, stride, static_cast<std::size_t>(nodes_->across_nodes->size()),
                                       static_cast<std::size_t>(nodes_->on_node->size()) * stride}
                               : Parts{bytes, stride};
    reduction.transfer =
        reduction.group->start_all_to_all(sent, parts, reduction.staging.landing(*backend_, scratch.arrives));
}

void ReduceInPieces::begin_second_step(Reduction& reduction) {
    const Scratch scratch = scratch_of(reduction);
    const std::int64_t count = scratch.summed.element_count();
    backend_->sum_pieces(scratch.arrives, scratch.summed);
    Tensor sent = scratch.summed;
    if (rounds(reduction)) {
        sent = flat_range(scratch.rounded, 0, count);
        backend_->convert(scratch.summed, sent);
    }
    reduction.is_across_nodes = true;
    reduction.group = nodes_->across_nodes.get();
    const auto bytes = static_cast<std::size_t>(tensor::size_bytes(sent.dtype(), reduction.piece));
    const std::span<const std::byte> leaving = reduction.staging.leave_device(*backend_, sent);
    reduction.transfer =
        reduction.group->start_all_to_all(leaving, Parts::one_after_another(bytes),
                                          reduction.staging.landing(*backend_, flat_range(scratch.arrives, 0, count)));
}

void ReduceInPieces::advance() {
    Reduction& reduction = *under_way_.front();
    reduction.group->wait(reduction.transfer, reduction.awaited);
    const Scratch scratch = scratch_of(reduction);
    const Tensor arrived =
        reduction.is_across_nodes ? flat_range(scratch.arrives, 0, scratch.summed.element_count()) : scratch.arrives;
    reduction.staging.receive(*backend_, arrived);
    if (nodes_ && !reduction.is_across_nodes) return begin_second_step(reduction);
    backend_->sum_pieces(arrived, flat_range(reduction.shard, reduction.done, reduction.piece));
    reduction.done += reduction.piece;
    if (reduction.done < reduction.shard.element_count()) return begin_piece(reduction);
    under_way_.pop_front();
    if (!under_way_.empty()) begin_piece(*under_way_.front());
}

void ReduceInPieces::finish(Reduction& reduction) {
    while (reduction.done < reduction.shard.element_count()) advance();
}

void ReduceInPieces::progress() {
    while (!under_way_.empty()) {
        Reduction& oldest = *under_way_.front();
        oldest.group->progress();
        if (!oldest.group->is_done(oldest.transfer)) return;
        advance();
    }
}

}  // namespace atl::parallel
