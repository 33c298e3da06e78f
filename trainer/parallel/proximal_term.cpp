#include "trainer/parallel/proximal_term.h"

#include <algorithm>

namespace atl::parallel {
namespace {

using tensor::Category;
constexpr auto kExact = ParameterStore::Saved::kExactWeights;
// 1 MB of differences: they stay in a core's cache between the operations on them.
constexpr std::int64_t kRangeElements = std::int64_t{1} << 18;

}  // namespace

ProximalTerm ProximalTerm::lay_out(Arena& arena, const ParameterStore& store) {
    ProximalTerm term;
    std::int64_t largest = 0;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        const bool trains = store.trains(unit);
        const std::int64_t shard = store.shard_spec(unit).shard;
        term.negated_start_.push_back(
            trains ? arena.allocate(Category::kStartWeights, store.saved_dtype(kExact, unit), {shard}) : Tensor());
        if (trains) largest = std::max(largest, shard);
    }
    term.difference_ =
        arena.allocate(Category::kWorkspace, store.model().formats.accumulated, {std::min(kRangeElements, largest)});
    return term;
}

template <class Work>
Status ProximalTerm::for_each_range(const ParameterStore& store, const Work& work) const {
    for (std::size_t unit = 0; unit < negated_start_.size(); ++unit) {
        if (!store.trains(unit)) continue;
        const std::int64_t shard = store.shard_spec(unit).shard;
        for (std::int64_t begin = 0; begin < shard; begin += kRangeElements)
            ATOLL_RETURN_IF_ERROR(work(Range{unit, begin, std::min(kRangeElements, shard - begin)}));
    }
    return {};
}

Result<Tensor> ProximalTerm::exact_weights(kernels::Backend& backend, ParameterStore& store, const Range& range,
                                           const Tensor& buffer) {
    const Tensor exact = store.exact_weight_shard(range.unit);
    if (!exact.empty()) return flat_range(exact, range.begin, range.count);
    const Tensor weights(buffer.data(), store.saved_dtype(kExact, range.unit), {range.count});
    read_.resize(static_cast<std::size_t>(weights.byte_count()));
    const std::int64_t at = store.shard_spec(range.unit).begin - store.saved_range(kExact, range.unit).begin;
    ATOLL_RETURN_IF_ERROR(store.read(backend, kExact, range.unit, at + range.begin, read_));
    backend.copy_from_host(read_.data(), weights);
    return weights;
}

Status ProximalTerm::set_start(kernels::Backend& backend, ParameterStore& store) {
    return for_each_range(store, [&](const Range& range) -> Status {
        const Tensor start = flat_range(negated_start_[range.unit], range.begin, range.count);
        ATOLL_TRY(const Tensor weights, exact_weights(backend, store, range, start));
        if (weights.data() != start.data()) backend.copy(weights, start);
        backend.scale(start, -1.0F);
        return {};
    });
}

Status ProximalTerm::add_to_gradients(kernels::Backend& backend, ParameterStore& store, double factor) {
    return for_each_range(store, [&](const Range& range) -> Status {
        const Tensor difference = flat_range(difference_, 0, range.count);
        ATOLL_TRY(const Tensor weights, exact_weights(backend, store, range, difference));
        backend.add(weights, flat_range(negated_start_[range.unit], range.begin, range.count), difference);
        backend.scale(difference, static_cast<float>(factor));
        const Tensor gradients = flat_range(store.gradient_shard(range.unit), range.begin, range.count);
        backend.add(gradients, difference, gradients);
        return {};
    });
}

}  // namespace atl::parallel
