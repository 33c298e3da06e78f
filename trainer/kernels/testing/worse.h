#pragma once

#include <cmath>

namespace atl::kernels {

// The larger of two errors; NaN, which std::max passes over, is larger than any.
inline double worse(double error, double other) {
    return std::isnan(error) || error >= other ? error : other;
}

}  // namespace atl::kernels
