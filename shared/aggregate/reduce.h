#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/aggregate/exact_sum.h"
#include "shared/aggregate/plan.h"

// The arithmetic on whole elements. Internal to this module.
namespace atl::aggregate {

// Models that are read for a block: the inputs, and what the strategy wants beside them.
std::size_t source_count(const Plan& plan);
// How many sums an input's measuring has; behind those of all inputs there is one of the base.
inline constexpr std::size_t kSumsPerInput = 3;

// Memory for one block of elements.
struct Scratch {
    explicit Scratch(const Plan& plan);

    std::span<std::byte> raw_of(std::size_t source) { return std::span(raw).subspan(source * raw_bytes, raw_bytes); }

    std::size_t raw_bytes;
    std::vector<std::byte> raw;             // a block of each source, as stored
    std::vector<std::byte> whole;           // one element of which only some bytes are wanted
    std::vector<float> wide;                // a tile of each source
    std::vector<float> result;              // a tile
    std::vector<double> changes;            // a tile's, summed over the inputs
    std::vector<std::span<float>> updates;  // those of `block`
    std::vector<float> counts;              // of one input, of the rows that a block touches
    std::vector<double> frequencies;        // of those rows in each input
    std::vector<std::byte> blocks;          // of one input, those that hold the elements read
    Block block;                            // spans of `wide` and `frequencies`

    // The pair that was made last, as its two tensors follow one another: [rank, in] and [out, rank].
    struct MadePair {
        std::size_t pair;
        std::size_t prepared;  // Plan::prepared
        std::vector<float> a, b;
        double left_out, whole;
    };
    std::optional<MadePair> made_pair;
    Truncation truncation;
};

void widen(safetensors::DType dtype, float* wide, const std::byte* stored, std::size_t count);
// False if it holds NaN or infinity, or rounds to it. `seen`: room for what was rounded; empty: it cannot overflow.
bool round_into(safetensors::DType dtype, std::byte* out, std::span<const float> values, std::span<float> seen);
// The input's elements [first, first + into.size() / 4) of a tensor whose `place` is a change, as fp32: `base` has the
// same elements of the base, as stored.
Status read_changed(const Input& input, const Place& place, safetensors::DType base_dtype,
                    std::span<const std::byte> base, std::uint64_t first, std::span<std::byte> into, Scratch& scratch);
Error non_finite(const std::string& tensor, const std::string& model, std::uint64_t element);
// The one of several inputs that holds much larger numbers than the others, by the largest of each.
std::optional<std::size_t> find_outlier(const std::vector<double>& largest);

// Makes the tensor's elements from the `first` on, as many as `into` holds and at most a block of them. Errors as
// Aggregator::read().
Status reduce_elements(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                       Scratch& scratch);

// Elements of a model that a strategy gets at a time (8 KiB), and that are measured together: the n-th tile of a tensor
// has those from n times this on, so that its sums are the same whatever the tensor is cut into.
inline constexpr std::size_t kTile = 2048;

// Adds what the tensor's tiles [first, end) are measured to: of each input the squares of its change, of that times the
// sum of the others' changes, and of this, then of the base itself. Errors as Aggregator::measure().
Status measure_tiles(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::uint64_t end,
                     std::span<ExactSum> sums, Scratch& scratch);

}  // namespace atl::aggregate
