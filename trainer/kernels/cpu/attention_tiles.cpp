#include "trainer/kernels/cpu/attention_tiles.h"

#include <algorithm>

namespace atl::kernels::cpu {
namespace {

// So many groups keep threads from waiting long for the last one.
constexpr std::int64_t kGroupsPerThread = 4;
// Queries of a tile, over all its heads: enough to pay for packing the keys. A multiple of the kernels' blocks of
// queries and panels of keys, so that these are the same wherever a sequence is cut.
constexpr std::int64_t kTileQueries = 512;
// Keys of a tile; a multiple of the kernels' panels too.
constexpr std::int64_t kTileKeys = 128;

std::int64_t divide_up(std::int64_t count, std::int64_t size) {
    return (count + size - 1) / size;
}

bool has_groups_enough(const AttentionShape& shape, int threads) {
    return shape.batch * shape.kv_heads >= kGroupsPerThread * threads;
}

std::int64_t group_of(const AttentionShape& shape) {
    return shape.heads / shape.kv_heads;
}

// Time of so many equal tiles that make `work` of each group.
double time_of(std::int64_t tiles, std::int64_t groups, double work, int threads) {
    return static_cast<double>(divide_up(tiles, threads)) * work * static_cast<double>(groups) /
           static_cast<double>(tiles);
}

}  // namespace

AttentionTiles::AttentionTiles(const AttentionShape& shape, std::int64_t keys, std::int64_t tile_heads,
                               std::int64_t tile_queries, std::int64_t tile_keys)
    : shape_(shape),
      keys_(keys),
      tile_heads_(tile_heads),
      tile_queries_(tile_queries),
      tile_keys_(std::min(keys, tile_keys)),
      parts_(divide_up(group_of(shape), tile_heads)),
      query_blocks_(divide_up(shape.length, tile_queries)),
      key_blocks_(divide_up(keys, tile_keys_)) {}

AttentionTiles AttentionTiles::of_groups(const AttentionShape& shape, std::int64_t keys) {
    return {shape, keys, group_of(shape), shape.length, keys};
}

AttentionTiles AttentionTiles::of_queries(const AttentionShape& shape, std::int64_t keys) {
    const std::int64_t queries = std::min(shape.length, kTileQueries);
    const std::int64_t heads = std::clamp<std::int64_t>(kTileQueries / queries, 1, group_of(shape));
    return {shape, keys, heads, queries, keys};
}

AttentionTiles AttentionTiles::of_keys(const AttentionShape& shape, std::int64_t keys) {
    return {shape, keys, group_of(shape), shape.length, kTileKeys};
}

AttentionTiles AttentionTiles::of_heads(const AttentionShape& shape, std::int64_t keys) {
    return {shape, keys, 1, shape.length, keys};
}

AttentionTile AttentionTiles::at(std::int64_t index) const {
    const std::int64_t block = index / of_block(), group = index % of_block() / parts_;
    const std::int64_t skipped = index % parts_ * tile_heads_;
    AttentionTile tile{};
    tile.sequence = group / shape_.kv_heads;
    tile.kv_head = group % shape_.kv_heads;
    tile.first_head = tile.kv_head * group_of(shape_) + skipped;
    tile.group = std::min(tile_heads_, group_of(shape_) - skipped);
    tile.first_query = (query_blocks_ - 1 - block % query_blocks_) * tile_queries_;
    tile.query_count = std::min(tile_queries_, shape_.length - tile.first_query);
    tile.first_key = block / query_blocks_ * tile_keys_;
    const std::int64_t seen = keys_ - shape_.length + tile.first_query + tile.query_count;
    tile.key_count = std::min(tile_keys_, seen - tile.first_key);
    return tile;
}

AttentionTiles attention_forward_tiles(const AttentionShape& shape, std::int64_t keys, int threads) {
    return has_groups_enough(shape, threads) ? AttentionTiles::of_groups(shape, keys)
                                             : AttentionTiles::of_queries(shape, keys);
}

AttentionTiles attention_step_tiles(const AttentionShape& shape, std::int64_t keys, int threads) {
    return has_groups_enough(shape, threads) ? AttentionTiles::of_groups(shape, keys)
                                             : AttentionTiles::of_heads(shape, keys);
}

bool splits_attention_backward(const AttentionShape& shape, int threads) {
    const std::int64_t groups = shape.batch * shape.kv_heads;
    const std::int64_t of_queries = AttentionTiles::of_queries(shape, shape.length).count();
    const std::int64_t of_keys = AttentionTiles::of_keys(shape, shape.length).count();
    return time_of(of_queries, groups, 3, threads) + time_of(of_keys, groups, 4, threads) <
           time_of(groups, groups, 5, threads);
}

}  // namespace atl::kernels::cpu
