#pragma once

#include <cmath>

#include "trainer/kernels/gpu/packs.h"

// What the kernels of all norms have in common.
namespace atl::kernels::gpu {

__device__ inline float reciprocal_root(float sum_of_squares, std::int64_t columns, float epsilon) {
    return 1.0F / sqrtf(sum_of_squares / static_cast<float>(columns) + epsilon);
}

// values · root · weight
template <int kWidth>
__device__ Values<kWidth> normed(Values<kWidth> values, const Values<kWidth>& weight, float root) {
    ATOLL_UNROLL
    for (int i = 0; i < kWidth; ++i) values.at[i] = values.at[i] * root * weight.at[i];
    return values;
}

}  // namespace atl::kernels::gpu
