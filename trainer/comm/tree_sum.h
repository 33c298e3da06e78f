#pragma once

#include <span>

namespace atl::comm {

// The sum of a handful of numbers by the fixed tree ((0+1)+(2+3))+…. Destroys them.
double tree_sum(std::span<double> values);

}  // namespace atl::comm
