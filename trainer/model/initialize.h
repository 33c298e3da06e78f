#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trainer/model/block.h"

namespace atl::model {

// The stream of random numbers that belongs to a name: its 64-bit FNV-1a hash.
std::uint64_t random_stream(std::string_view name);

// Fills elements [begin, begin + values.size()) of a parameter with its initial values: normal with mean 0 and
// init_deviation, uniform in ±init_deviation, ones or zeros. Every element depends only on the seed, the parameter's
// name and its index (Philox 4x32-10, Salmon et al., SC11), so any slice on any rank gets the same bits.
void initialize(const Parameter& parameter, std::uint64_t seed, std::int64_t begin, std::span<float> values);

}  // namespace atl::model
