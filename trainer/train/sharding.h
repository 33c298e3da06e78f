#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/model/model.h"

namespace atl::train {

// What each rank keeps only its part of (Rajbhandari et al., arXiv:1910.02054).
enum class Sharding : std::uint8_t {
    kNone,            // every rank keeps all
    kShardOptimizer,  // ZeRO-1: moments are sharded
    kShardGradOp,     // ZeRO-2: gradients too
    kFullShard,       // ZeRO-3: weights too
};
Result<Sharding> parse_sharding(std::string_view name);
constexpr bool shards_moments(Sharding sharding) {
    return sharding != Sharding::kNone;
}
constexpr bool shards_gradients(Sharding sharding) {
    return sharding >= Sharding::kShardGradOp;
}
constexpr bool shards_weights(Sharding sharding) {
    return sharding == Sharding::kFullShard;
}

// How one group's flat buffer is cut: padded with zeros so that each rank's part is equal and aligned.
struct GroupCut {
    std::int64_t element_count = 0;  // what the group really has
    std::int64_t whole = 0;          // elements with the padding
    std::int64_t shard = 0;          // elements a rank: whole / ranks
    std::int64_t begin = 0;          // where this rank's part begins
};

GroupCut cut_group(const model::ParameterGroup& group, int rank, int ranks);
std::vector<GroupCut> cut_groups(const model::Model& model, int rank, int ranks);

// A part of one parameter: elements [begin, begin + count) of it, which are elements [at, at + count) of a range.
struct Piece {
    std::size_t parameter = 0;
    std::int64_t begin = 0;
    std::int64_t at = 0;
    std::int64_t count = 0;
};

// The parameters that lie in elements [begin, begin + count) of a group's flat buffer, in order. Padding has none.
std::vector<Piece> pieces_of(const model::ParameterGroup& group, std::int64_t begin, std::int64_t count);

// Elements [begin, begin + count) of a flat buffer.
tensor::Tensor flat_range(const tensor::Tensor& flat, std::int64_t begin, std::int64_t count);

}  // namespace atl::train
