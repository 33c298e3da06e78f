#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/aggregate/plan.h"

// The arithmetic on whole elements. Internal to this module.
namespace atl::aggregate {

// Memory for one block of elements.
struct Scratch {
    explicit Scratch(const Plan& plan);

    std::vector<std::byte> raw;    // elements of one model, as stored
    std::vector<std::byte> whole;  // one element of which only some bytes are wanted
    std::vector<float> sum;
    std::vector<float> wide;
    std::vector<float> base;
    std::vector<float> momentum;
};

// Makes the tensor's elements from the `first` on, as many as `into` holds and at most a block of them. Errors as
// Aggregator::read().
Status reduce_elements(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                       Scratch& scratch);

}  // namespace atl::aggregate
