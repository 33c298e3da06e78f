#include <bit>

#include "trainer/dataset/dataset.h"

namespace atl::dataset {
namespace {

constexpr int kRounds = 8;

// The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

// A keyed permutation of [0, 2^(2·half_bits)): a balanced Feistel network.
std::uint64_t permute(std::uint64_t value, int half_bits, std::uint64_t key) {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t next = left ^ (mix(right ^ mix(key + static_cast<std::uint64_t>(round))) & mask);
        left = right;
        right = next;
    }
    return (left << half_bits) | right;
}

}  // namespace

RowOrder::RowOrder(std::int64_t rows, bool shuffle, std::uint64_t seed) : rows_(rows), shuffle_(shuffle), seed_(seed) {
    check(rows > 0, "an order of no rows");
    half_bits_ = (std::bit_width(static_cast<std::uint64_t>(rows) - 1) + 1) / 2;
}

std::int64_t RowOrder::row_at(std::int64_t position) const {
    check(position >= 0, "a negative position in the row order");
    const std::int64_t epoch = position / rows_;
    const std::int64_t index = position % rows_;
    if (!shuffle_ || half_bits_ == 0) return index;
    const std::uint64_t key = mix(seed_ ^ mix(static_cast<std::uint64_t>(epoch)));
    // The network permutes a power of four; walking its cycle until we are inside permutes [0, rows). The power is at
    // most four times rows, so that a few steps do.
    auto value = static_cast<std::uint64_t>(index);
    do {
        value = permute(value, half_bits_, key);
    } while (value >= static_cast<std::uint64_t>(rows_));
    return static_cast<std::int64_t>(value);
}

}  // namespace atl::dataset
