#include "trainer/train/not_finite.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "trainer/parallel/finite.h"

namespace atl::train {
namespace {

// A parameter: of which unit, and which of it.
struct Place {
    std::size_t unit = 0;
    std::size_t parameter = 0;
};

// The lowest index that any rank gives; absent: none gives one.
std::optional<std::size_t> lowest_of_ranks(comm::Comm& comm, std::optional<std::size_t> mine) {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    double negated = mine ? -static_cast<double>(*mine) : kNone;
    comm.all_reduce(std::span(&negated, 1), comm::Reduction::kMax);
    return negated == kNone ? std::nullopt : std::optional(static_cast<std::size_t>(-negated));
}

// The parameters in the order that the forward pass meets them first.
std::vector<Place> places_in_order(const model::Model& model) {
    std::vector<std::size_t> units(model.units.size());
    std::iota(units.begin(), units.end(), 0);
    std::ranges::stable_sort(units, {},
                             [first = model.first_block_of_unit()](std::size_t unit) { return first[unit]; });
    std::vector<Place> places;
    for (const std::size_t unit : units) {
        for (std::size_t i = 0; i < model.units[unit].parameters.size(); ++i) places.push_back({unit, i});
    }
    return places;
}

// Whether what this rank keeps of a parameter is finite; `kept` begins at `begin` of its unit's flat buffer.
bool is_finite(kernels::Backend& backend, const model::FsdpUnit& unit, std::size_t parameter,
               const tensor::Tensor& kept, std::int64_t begin) {
    for (const parallel::Piece& piece : parallel::split_by_parameter(unit, begin, kept.element_count())) {
        if (piece.parameter != parameter) continue;
        if (!parallel::all_finite(backend, parallel::flat_range(kept, piece.at, piece.count))) return false;
    }
    return true;
}

std::optional<std::size_t> find_weight(parallel::ParameterStore& store, kernels::Backend& backend,
                                       const std::vector<Place>& places) {
    for (std::size_t i = 0; i < places.size(); ++i) {
        const auto [unit, parameter] = places[i];
        const model::FsdpUnit& parameters = store.model().units[unit];
        if (parameters.is_quantized()) continue;  // frozen, and read from a file that holds finite values
        const tensor::Tensor& weights = store.weights(unit);
        if (!is_finite(backend, parameters, parameter, weights, store.kept_begin(weights, unit))) return i;
    }
    return std::nullopt;
}

std::optional<std::size_t> find_gradient(parallel::ParameterStore& store, kernels::Backend& backend,
                                         const std::vector<Place>& places) {
    for (std::size_t i = 0; i < places.size(); ++i) {
        const auto [unit, parameter] = places[i];
        if (!store.trains(unit)) continue;
        if (!is_finite(backend, store.model().units[unit], parameter, store.gradient_shard(unit),
                       store.shard_spec(unit).begin))
            return i;
    }
    return std::nullopt;
}

}  // namespace

std::string find_not_finite(parallel::RunMemory& memory, kernels::Backend& backend, parallel::ProcessGroups& ranks,
                            std::int64_t micro_steps, const std::function<void(std::int64_t micro)>& load_rows,
                            const std::function<void()>& make_gradients) {
    parallel::ParameterStore& store = memory.store();
    const model::Model& model = store.model();
    comm::Comm& comm = ranks.sharing().comm();
    std::vector<Place> places = places_in_order(model);
    const auto name = [&](std::size_t i) { return model.units[places[i].unit].parameters[places[i].parameter].name; };
    if (const auto found = lowest_of_ranks(comm, find_weight(store, backend, places)))
        return "first in the weight " + name(*found);
    std::optional<std::size_t> first;
    for (std::int64_t micro = 0; micro < micro_steps; ++micro) {
        load_rows(micro);
        const auto block = memory.engine().find_not_finite(backend, ranks, memory.batch().batch());
        if (block) first = std::min(*block, first.value_or(*block));
    }
    if (const auto found = lowest_of_ranks(comm, first))
        return "first in the output of " + model.blocks[*found]->name();
    make_gradients();
    std::ranges::reverse(places);
    if (const auto found = lowest_of_ranks(comm, find_gradient(store, backend, places)))
        return "first in the gradient of " + name(*found);
    return "no weight, activation or gradient is, but a sum of them";
}

}  // namespace atl::train
