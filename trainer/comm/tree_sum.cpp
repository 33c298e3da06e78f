#include "trainer/comm/tree_sum.h"

#include <cstddef>

namespace atl::comm {

double tree_sum(std::span<double> values) {
    for (std::size_t stride = 1; stride < values.size(); stride *= 2) {
        for (std::size_t i = 0; i + stride < values.size(); i += 2 * stride) values[i] += values[i + stride];
    }
    return values.empty() ? 0 : values[0];
}

}  // namespace atl::comm
