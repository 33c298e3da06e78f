#include "trainer/parallel/exact_sum_of_squares.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace atl::parallel {
namespace {

constexpr std::uint32_t kMantissaBits = 23;
constexpr int kExponentBias = 127;

}  // namespace

void ExactSumOfSquares::add(std::span<const float> values) {
    for (const float value : values) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t exponent = bits >> kMantissaBits & 0xFF;
        const std::uint32_t implied = exponent == 0 ? 0 : 1U << kMantissaBits;
        const std::uint64_t mantissa = (bits & ((1U << kMantissaBits) - 1)) | implied;
        sums_[exponent] += mantissa * mantissa;
    }
}

void ExactSumOfSquares::add(kernels::Backend& backend, const tensor::Tensor& values) {
    constexpr std::int64_t kPiece = 1 << 16;
    std::vector<float> piece(static_cast<std::size_t>(std::min(kPiece, values.element_count())));
    for (std::int64_t at = 0; at < values.element_count(); at += kPiece) {
        const std::int64_t count = std::min(kPiece, values.element_count() - at);
        backend.copy_to_host(tensor::Tensor(values.at(at), tensor::DType::kF32, {count}), piece.data());
        add(std::span(piece).first(static_cast<std::size_t>(count)));
    }
}

void ExactSumOfSquares::combine(comm::Comm& comm) {
    std::vector<Wide> all(sums_.size() * static_cast<std::size_t>(comm.size()));
    comm.all_gather(std::as_bytes(std::span(sums_)), std::as_writable_bytes(std::span(all)));
    sums_.fill(0);
    for (std::size_t i = 0; i < all.size(); ++i) sums_[i % sums_.size()] += all[i];
}

double ExactSumOfSquares::value() const {
    if (sums_.back() != 0) return std::numeric_limits<double>::infinity();
    double sum = 0;
    for (int exponent = 0; exponent < static_cast<int>(sums_.size()); ++exponent) {
        const int power = std::max(exponent, 1) - kExponentBias - static_cast<int>(kMantissaBits);
        sum += std::ldexp(static_cast<double>(sums_[static_cast<std::size_t>(exponent)]), 2 * power);
    }
    return sum;
}

}  // namespace atl::parallel
