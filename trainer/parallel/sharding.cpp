#include "trainer/parallel/sharding.h"

#include <algorithm>
#include <string>

namespace atl::parallel {
namespace {

// Whole cache lines in every storage format, so that the cut does not depend on it.
constexpr std::int64_t kAlignmentElements = 64;

}  // namespace

Result<Sharding> parse_sharding(std::string_view name) {
    if (name == "none") return Sharding::kNone;
    if (name == "shard_optimizer") return Sharding::kShardOptimizer;
    if (name == "shard_grad_op") return Sharding::kShardGradOp;
    if (name == "full_shard") return Sharding::kFullShard;
    if (name == "hybrid_shard") return Sharding::kHybridShard;
    if (name == "hybrid_shard_zero2") return Sharding::kHybridShardZero2;
    return invalid_argument("--sharding", "'" + std::string(name) + "' is not built yet");
}

Division divide(Sharding sharding, int rank, int ranks, int shard_group) {
    if (!is_hybrid(sharding)) return {ranks == 1 ? Sharding::kNone : sharding, rank, ranks, ranks};
    check(shard_group >= 1 && ranks % shard_group == 0, "divide: the groups do not divide the ranks");
    if (shard_group == 1) return {Sharding::kNone, rank, ranks, ranks};  // as many whole copies as ranks
    return {sharding == Sharding::kHybridShard ? Sharding::kFullShard : Sharding::kShardGradOp, rank, ranks,
            shard_group};
}

GroupCut cut_group(const model::ParameterGroup& group, const Division& division) {
    const std::int64_t unit = kAlignmentElements * division.ranks;
    const std::int64_t whole = (group.element_count + unit - 1) / unit * unit;
    const std::int64_t shard = whole / division.shard_ranks;
    return {group.element_count, whole, shard, shard * division.shard()};
}

std::vector<GroupCut> cut_groups(const model::Model& model, const Division& division) {
    std::vector<GroupCut> cuts;
    for (const model::ParameterGroup& group : model.groups) cuts.push_back(cut_group(group, division));
    return cuts;
}

std::vector<Piece> pieces_of(const model::ParameterGroup& group, std::int64_t begin, std::int64_t count) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
        const model::Parameter& parameter = group.parameters[i];
        const std::int64_t from = std::max(begin, parameter.offset);
        const std::int64_t to = std::min(begin + count, parameter.offset + parameter.extent);
        if (from < to) pieces.push_back({i, from - parameter.offset, from - begin, to - from});
    }
    return pieces;
}

std::span<float> elements(const tensor::Tensor& tensor) {
    return {tensor.f32(), static_cast<std::size_t>(tensor.element_count())};
}

tensor::Tensor flat_range(const tensor::Tensor& flat, std::int64_t begin, std::int64_t count) {
    check(begin >= 0 && begin + count <= flat.element_count(), "flat_range: outside the buffer");
    if (begin == 0 && count == flat.element_count()) return flat;
    return {flat.at(begin), flat.dtype(), {count}};
}

}  // namespace atl::parallel
