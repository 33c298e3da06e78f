#include "trainer/parallel/muon_directions.h"

#include <algorithm>

#include "trainer/trace/trace.h"

namespace atl::parallel {
namespace {

using tensor::Category;
using tensor::DType;
using tensor::Tensor;

// What orthogonalising a matrix costs, in multiplications but for a factor.
double cost_of(std::int64_t rows, std::int64_t columns) {
    const auto shorter = static_cast<double>(std::min(rows, columns));
    const auto longer = static_cast<double>(std::max(rows, columns));
    return shorter * shorter * (2 * longer + shorter);
}

}  // namespace

bool is_driven_by_muon(const model::FsdpUnit& unit, const model::Parameter& parameter) {
    return unit.is_layer && !unit.frozen && parameter.shape.size() == 2;
}

// The costliest first, each to the rank with the least to do.
std::vector<MuonDirections::Matrix> MuonDirections::share_out(const model::FsdpUnit& unit, int ranks) {
    std::vector<Matrix> matrices;
    for (const model::Parameter& parameter : unit.parameters) {
        if (is_driven_by_muon(unit, parameter))
            matrices.push_back({parameter.offset, parameter.shape[0], parameter.shape[1], 0});
    }
    std::ranges::stable_sort(matrices, std::greater<>(),
                             [](const Matrix& matrix) { return cost_of(matrix.rows, matrix.columns); });
    std::vector<double> costs(static_cast<std::size_t>(ranks));
    for (Matrix& matrix : matrices) {
        const auto least = std::ranges::min_element(costs);
        *least += cost_of(matrix.rows, matrix.columns);
        matrix.owner = static_cast<int>(least - costs.begin());
    }
    return matrices;
}

MuonDirections MuonDirections::lay_out(const Arenas& arenas, const model::Model& model, const ParallelLayout& layout,
                                       bool is_sharded) {
    MuonDirections directions;
    directions.model_ = &model;
    directions.is_sharded_ = is_sharded;
    const int ranks = layout.shard_ranks();
    std::int64_t whole = 0, elements = 0, side = 0;
    for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
        const Unit& made = directions.units_.emplace_back(
            Unit{shard_spec(model.units[unit], layout), share_out(model.units[unit], ranks)});
        if (!made.matrices.empty()) whole = std::max(whole, made.spec.whole);
        for (const Matrix& matrix : made.matrices) {
            elements = std::max(elements, matrix.rows * matrix.columns);
            side = std::max(side, std::min(matrix.rows, matrix.columns));
        }
    }
    if (whole == 0) return directions;
    directions.whole_ = arenas.device.allocate(Category::kWorkspace, optim::kDirectionDtype, {whole});
    directions.scratch_ = optim::OrthogonalizeScratch::lay_out(arenas.device, elements, side);
    const std::int64_t gather =
        arenas.library.gather_bytes(ranks, tensor::size_bytes(optim::kDirectionDtype, whole / ranks), {});
    if (gather > 0) directions.gather_pinned_ = arenas.pinned.allocate(Category::kGather, DType::kU8, {gather});
    const auto reduce = arenas.library.reduce_need({.ranks = ranks, .elements = whole});
    if (reduce.scratch > 0)
        directions.reduce_memory_.scratch =
            arenas.device.allocate(Category::kGather, optim::kDirectionDtype, {reduce.scratch});
    if (reduce.pinned_bytes > 0)
        directions.reduce_memory_.pinned = arenas.pinned.allocate(Category::kGather, DType::kU8, {reduce.pinned_bytes});
    return directions;
}

Tensor MuonDirections::own(std::size_t unit) const {
    const ShardSpec& spec = units_[unit].spec;
    return is_sharded_ ? flat_range(whole_, spec.begin, spec.shard) : flat_range(whole_, 0, spec.whole);
}

void MuonDirections::orthogonalize(kernels::Backend& backend, Collectives& ranks, std::size_t unit) const {
    const Unit& of = units_[unit];
    const Tensor whole = flat_range(whole_, 0, of.spec.whole);
    const Tensor shard = flat_range(whole_, of.spec.begin, of.spec.shard);
    const comm::Awaited awaited{"the directions of Muon", model_->units[unit].name};
    if (is_sharded_) ranks.all_gather(shard, whole, {}, gather_pinned_, awaited);
    for (const Matrix& matrix : of.matrices) {
        const Tensor x(whole.at(matrix.offset), optim::kDirectionDtype, {matrix.rows, matrix.columns});
        if (matrix.owner == ranks.rank())
            optim::orthogonalize(backend, x, scratch_);
        else
            backend.zero(x);
    }
    if (ranks.size() == 1) return;
    // All but the owner add zeros, which changes no bit.
    ranks.wait(ranks.start_reduce_scatter(whole, shard, reduce_memory_, awaited));
    if (!is_sharded_) ranks.all_gather(shard, whole, {}, gather_pinned_, awaited);
}

}  // namespace atl::parallel
