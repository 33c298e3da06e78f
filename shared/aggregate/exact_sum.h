#pragma once

#include <span>
#include <vector>

namespace atl::aggregate {

// The exact sum of finite doubles (Shewchuk 1997, "Adaptive Precision Floating-Point Arithmetic"), rounded once, when
// it is asked for. So it does not depend on the order, nor on who added which part. Undefined where it leaves the range
// of a double.
class ExactSum {
  public:
    void add(double value);
    void add(const ExactSum& other);
    double value() const;

    // A few numbers, the smallest first, whose exact sum this is: to be kept, and added to another one later.
    std::span<const double> terms() const { return terms_; }

  private:
    std::vector<double> terms_;  // without overlap, by growing magnitude
};

}  // namespace atl::aggregate
