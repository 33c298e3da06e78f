#include "trainer/parallel/pairwise_sum.h"

#include <bit>

#include "trainer/comm/tree_sum.h"

namespace atl::parallel {

PairwiseSum PairwiseSum::lay_out(Arena& arena, const ParameterStore& store, std::int64_t sequences) {
    PairwiseSum tree;
    tree.sequences_ = sequences;
    tree.added_.assign(store.unit_count(), 0);
    const int levels = std::bit_width(static_cast<std::uint64_t>(sequences - 1));
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        auto& partial = tree.partial_.emplace_back();
        if (!store.trains(unit)) continue;
        const std::int64_t count = store.shard_spec(unit).whole / store.layout().ranks();
        for (int level = 0; level < levels; ++level) {
            partial.push_back(arena.allocate(tensor::Category::kGradients, store.model().formats.accumulated, {count}));
        }
    }
    return tree;
}

void PairwiseSum::add(kernels::Backend& backend, std::size_t unit, const Tensor& gradient, const Tensor& sum) {
    const auto before = static_cast<std::uint64_t>(added_[unit]++);  // its binary digits: which partial sums there are
    const bool last = added_[unit] == sequences_;
    std::size_t level = 0;
    for (; (last ? before >> level : before >> level & 1) != 0; ++level) {
        if ((before >> level & 1) != 0) backend.add(partial_[unit][level], gradient, gradient);
    }
    if (last) added_[unit] = 0;
    const Tensor& into = last ? sum : partial_[unit][level];
    if (into.data() != gradient.data()) backend.copy(gradient, into);
}

double sum_by_sequence(comm::Comm& comm, std::span<const double> mine) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    std::vector<double> by_rank(mine.size() * ranks);
    comm.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(by_rank)));
    std::vector<double> by_sequence;
    for (std::size_t i = 0; i < mine.size(); ++i) {
        for (std::size_t rank = 0; rank < ranks; ++rank) by_sequence.push_back(by_rank[rank * mine.size() + i]);
    }
    return comm::tree_sum(by_sequence);
}

}  // namespace atl::parallel
