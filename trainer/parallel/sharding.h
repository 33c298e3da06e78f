#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shared/run_settings/choices.h"
#include "trainer/model/model.h"
#include "trainer/parallel/mesh.h"

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

// How a run's ranks share a model, and where one of them is. What is sharded is cut among `shard_ranks` of those that
// have the same part of the model; the ranks of a context keep shards too, as they compute with the same weights.
struct ParallelLayout {
    Sharding sharding = Sharding::kNone;  // within a copy, so never a hybrid one
    Mesh mesh;
    Mesh::Place place;

    // Among the ranks that have the same part of the model: all of the run, as long as it is not cut.
    int rank() const { return replica() * shard_ranks() + shard(); }
    int ranks() const { return mesh.sharing_ranks(); }
    int shard_ranks() const { return mesh.shards * mesh.context; }
    int shard() const { return place.shard * mesh.context + place.context; }
    int replica() const { return place.replica; }
    int replicas() const { return mesh.replicas; }
    // Where a rank stands when all are ordered by the elements that are theirs alone (ParameterStore::own_gradients).
    int rank_by_shard(int of_rank) const { return of_rank % shard_ranks() * replicas() + of_rank / shard_ranks(); }
    // Among the ranks that see different rows.
    int data_rank() const { return place.replica * mesh.shards + place.shard; }
    int data_ranks() const { return mesh.data_ranks(); }
};

// The mesh of `ranks` that shard a model and nothing else. `shard_group` counts in the hybrid modes only and divides
// `ranks`: every so many consecutive ranks keep one copy.
Mesh sharding_mesh(Sharding sharding, int ranks, int shard_group = 0);
// On one rank nothing is sharded; nor in the hybrid modes where one rank keeps a copy, all of which then take turns to
// update a part, as without sharding.
ParallelLayout parallel_layout(Sharding sharding, Mesh mesh, int rank);
inline ParallelLayout parallel_layout(Sharding sharding, int rank, int ranks, int shard_group = 0) {
    return parallel_layout(sharding, sharding_mesh(sharding, ranks, shard_group), rank);
}

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
