#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shared/run_settings/choices.h"
#include "trainer/model/model.h"

namespace atl::parallel {

using run_settings::Sharding;
constexpr bool shards_moments(Sharding sharding) {
    return sharding != Sharding::kNone;
}
constexpr bool shards_gradients(Sharding sharding) {
    return sharding >= Sharding::kShardGradOp;
}
constexpr bool shards_weights(Sharding sharding) {
    return sharding == Sharding::kFullShard;
}

// How the ranks of a run share a model: every `shard_ranks` consecutive ranks keep one copy of what is sharded. That is
// all ranks, but in the hybrid modes.
struct ParallelLayout {
    Sharding sharding = Sharding::kNone;  // within a copy, so never a hybrid one
    int rank = 0;
    int ranks = 1;
    int shard_ranks = 1;  // divides ranks
    int shard() const { return rank % shard_ranks; }
    int replica() const { return rank / shard_ranks; }
    int replicas() const { return ranks / shard_ranks; }
    // Where a rank stands when all are ordered by the elements that are theirs alone (ParameterStore::own_gradients).
    int rank_by_shard(int of_rank) const { return of_rank % shard_ranks * replicas() + of_rank / shard_ranks; }
};

// `shard_group` counts in the hybrid modes only and divides `ranks`. On one rank, or one a group, nothing is sharded.
ParallelLayout parallel_layout(Sharding sharding, int rank, int ranks, int shard_group = 0);

// How one unit's flat buffer is cut: padded with zeros so that each rank's part is equal and aligned, and that part
// once more among the ranks that keep the same one.
struct ShardSpec {
    std::int64_t element_count = 0;  // what the unit really has
    std::int64_t whole = 0;          // elements with the padding
    std::int64_t shard = 0;          // elements a rank: whole / shard_ranks
    std::int64_t begin = 0;          // where this rank's part begins
};

ShardSpec shard_spec(const model::FsdpUnit& unit, const ParallelLayout& layout);
std::vector<ShardSpec> shard_specs(const model::Model& model, const ParallelLayout& layout);

// A part of one parameter: elements [begin, begin + count) of it, which are elements [at, at + count) of a range.
struct Piece {
    std::size_t parameter = 0;
    std::int64_t begin = 0;
    std::int64_t at = 0;
    std::int64_t count = 0;
};

// The parameters that lie in elements [begin, begin + count) of a unit's flat buffer, in order. Padding has none.
std::vector<Piece> split_by_parameter(const model::FsdpUnit& unit, std::int64_t begin, std::int64_t count);

// Elements [begin, begin + count) of a flat buffer.
tensor::Tensor flat_range(const tensor::Tensor& flat, std::int64_t begin, std::int64_t count);

}  // namespace atl::parallel
