#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "trainer/comm/comm.h"
#include "trainer/kernels/backend.h"

namespace atl::parallel {

// A sum of squares without any rounding, so that it depends on nothing but the numbers: not on their order, nor on
// which rank adds which. The square of a float's 24-bit mantissa is an integer; these are added up by exponent.
class ExactSumOfSquares {
  public:
    // At most 2^80 numbers in all.
    void add(std::span<const float> values);
    void add(kernels::Backend& backend, const tensor::Tensor& values);
    // Adds what the other ranks have; every rank gets the same.
    void combine(comm::Comm& comm);
    // Rounded once for each exponent that occurs. Infinity when one of the numbers is not finite.
    double value() const;

  private:
    __extension__ typedef unsigned __int128 Wide;  // an extension that every compiler we use has
    std::array<Wide, 256> sums_{};                 // by the float's exponent field
};

}  // namespace atl::parallel
