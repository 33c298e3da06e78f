#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/aggregate/exact_sum.h"
#include "shared/aggregate/plan.h"

// The arithmetic on whole elements. Internal to this module.
namespace atl::aggregate {

// Models that are read for a block: the inputs, and what the strategy wants beside them.
std::size_t source_count(const Plan& plan);
// How many sums an input's measuring has; behind those of all inputs there is one of the base.
inline constexpr std::size_t kSumsPerInput = 3;

// Memory for one block of elements.
struct Scratch {
    explicit Scratch(const Plan& plan);

    std::span<std::byte> raw_of(std::size_t source) { return std::span(raw).subspan(source * raw_bytes, raw_bytes); }

    std::size_t raw_bytes;
    std::vector<std::byte> raw;             // a block of each source, as stored
    std::vector<std::byte> whole;           // one element of which only some bytes are wanted
    std::vector<float> wide;                // a tile of each source
    std::vector<float> result;              // a tile
    std::vector<double> changes;            // a tile's, summed over the inputs
    std::vector<std::span<float>> updates;  // those of `block`
    Block block;                            // spans of `wide`
};

// Makes the tensor's elements from the `first` on, as many as `into` holds and at most a block of them. Errors as
// Aggregator::read().
Status reduce_elements(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                       Scratch& scratch);

// Elements of a model that a strategy gets at a time (8 KiB), and that are measured together: the n-th tile of a tensor
// has those from n times this on, so that its sums are the same whatever the tensor is cut into.
inline constexpr std::size_t kTile = 2048;

// Adds what the tensor's tiles [first, end) are measured to: of each input the squares of its change, of that times the
// sum of the others' changes, and of this, then of the base itself. Errors as Aggregator::measure().
Status measure_tiles(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::uint64_t end,
                     std::span<ExactSum> sums, Scratch& scratch);

}  // namespace atl::aggregate
