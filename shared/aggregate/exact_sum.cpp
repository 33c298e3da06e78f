#include "shared/aggregate/exact_sum.h"

#include <cmath>
#include <utility>

namespace atl::aggregate {

void ExactSum::add(double value) {
    std::size_t kept = 0;
    for (double term : terms_) {
        if (std::abs(value) < std::abs(term)) std::swap(value, term);
        const double sum = value + term;
        const double lost = term - (sum - value);
        if (lost != 0) terms_[kept++] = lost;
        value = sum;
    }
    terms_.resize(kept);
    if (value != 0) terms_.push_back(value);
}

void ExactSum::add(const ExactSum& other) {
    for (const double term : other.terms_) add(term);
}

double ExactSum::value() const {
    double sum = 0, lost = 0;
    std::size_t left = terms_.size();
    while (left > 0 && lost == 0) {
        const double before = sum, term = terms_[--left];
        sum = before + term;
        lost = term - (sum - before);
    }
    // Half way between two doubles the terms below say which one is nearer.
    if (left > 0 && lost != 0 && (lost < 0) == (terms_[left - 1] < 0)) {
        const double beyond = sum + 2 * lost;
        if (beyond - sum == 2 * lost) sum = beyond;
    }
    return sum;
}

}  // namespace atl::aggregate
