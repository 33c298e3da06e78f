#include "trainer/parallel/sharding.h"

#include <algorithm>
#include <string>
#include <utility>

namespace atl::parallel {
namespace {

// Whole cache lines in every storage format, so that the cut does not depend on it.
constexpr std::int64_t kAlignmentElements = 64;

}  // namespace

Mesh sharding_mesh(Sharding sharding, int ranks, int shard_group) {
    if (!is_hybrid(sharding)) return {.shards = ranks};
    check(shard_group >= 1 && ranks % shard_group == 0, "sharding_mesh: the groups do not divide the ranks");
    return {.replicas = ranks / shard_group, .shards = shard_group};
}

ParallelLayout parallel_layout(Sharding sharding, Mesh mesh, int rank) {
    if (is_hybrid(sharding)) {
        const bool is_whole = mesh.shards * mesh.context == 1;
        if (is_whole) std::swap(mesh.replicas, mesh.shards);
        sharding = is_whole                             ? Sharding::kNone
                   : sharding == Sharding::kHybridShard ? Sharding::kFullShard
                                                        : Sharding::kShardGradOp;
    } else {
        check(mesh.replicas == 1, "parallel_layout: copies are of the hybrid modes");
        if (mesh.sharing_ranks() == 1) sharding = Sharding::kNone;
    }
    return {sharding, mesh, mesh.place_of(rank)};
}

ShardSpec shard_spec(const model::FsdpUnit& unit, const ParallelLayout& layout) {
    const std::int64_t multiple = kAlignmentElements * layout.ranks();
    const std::int64_t whole = (unit.element_count + multiple - 1) / multiple * multiple;
    const std::int64_t shard = whole / layout.shard_ranks();
    return {unit.element_count, whole, shard, shard * layout.shard()};
}

std::vector<ShardSpec> shard_specs(const model::Model& model, const ParallelLayout& layout) {
    std::vector<ShardSpec> specs;
    for (const model::FsdpUnit& unit : model.units) specs.push_back(shard_spec(unit, layout));
    return specs;
}

std::vector<Piece> split_by_parameter(const model::FsdpUnit& unit, std::int64_t begin, std::int64_t count) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
        const model::Parameter& parameter = unit.parameters[i];
        const std::int64_t from = std::max(begin, parameter.offset);
        const std::int64_t to = std::min(begin + count, parameter.offset + parameter.extent);
        if (from < to) pieces.push_back({i, from - parameter.offset, from - begin, to - from});
    }
    return pieces;
}

tensor::Tensor flat_range(const tensor::Tensor& flat, std::int64_t begin, std::int64_t count) {
    check(begin >= 0 && begin + count <= flat.element_count(), "flat_range: outside the buffer");
    if (begin == 0 && count == flat.element_count()) return flat;
    return {flat.at(begin), flat.dtype(), {count}};
}

}  // namespace atl::parallel
