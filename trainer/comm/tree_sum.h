#pragma once

#include <cstddef>
#include <span>

namespace atl::comm {

// Adds `pieces.size() / count` pieces of `count` floats that lie one after another, by the fixed tree
// ((0+1)+(2+3))+…, into `sum` [count], which may alias nothing in `pieces`. Destroys `pieces`.
void tree_sum(std::span<float> pieces, std::span<float> sum);

// The same tree over `values`, for a handful of numbers.
double tree_sum(std::span<double> values);

}  // namespace atl::comm
