#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/aggregate/plan.h"

// The arithmetic on whole elements. Internal to this module.
namespace atl::aggregate {

// Models that are read for a block: the inputs, and what the strategy wants beside them.
std::size_t source_count(const Plan& plan);
// Whether the strategy wants to measure the inputs, and there is a base to measure them against.
bool is_measured(const Plan& plan);

// Memory for one block of elements.
struct Scratch {
    explicit Scratch(const Plan& plan);

    std::span<std::byte> raw_of(std::size_t source) { return std::span(raw).subspan(source * raw_bytes, raw_bytes); }

    std::size_t raw_bytes;
    std::vector<std::byte> raw;    // a block of each source, as stored
    std::vector<std::byte> whole;  // one element of which only some bytes are wanted
    std::vector<float> wide;       // a tile of each source
    std::vector<float> result;     // a tile
    Block block;                   // spans of `wide`
};

// Makes the tensor's elements from the `first` on, as many as `into` holds and at most a block of them. Errors as
// Aggregator::read().
Status reduce_elements(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                       Scratch& scratch);

// Adds the statistics of the tensor's elements [first, end). Errors as Aggregator::measure().
Status measure_elements(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::uint64_t end,
                        std::span<double> statistics, Scratch& scratch);

}  // namespace atl::aggregate
