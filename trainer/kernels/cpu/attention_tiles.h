#pragma once

#include <cstdint>

#include "trainer/kernels/backend.h"

// How attention is cut into tiles for threads that take them one by one. No cut changes a bit of what is computed: a
// query's sums are over its own keys in their order, a key's over all queries in theirs.
namespace atl::kernels::cpu {

// One key/value head of one sequence, some of the query heads that share it, and some of their queries and keys.
struct AttentionTile {
    std::int64_t sequence, kv_head;
    std::int64_t first_head, group;         // query heads
    std::int64_t first_query, query_count;  // rows of the sequence
    std::int64_t first_key, key_count;      // of the sequence, with those before its first query
};

// The tiles of one pass. `keys`: of a sequence, whose queries are the last of them.
class AttentionTiles {
  public:
    // All queries that share a key/value head, whose keys are then packed once.
    static AttentionTiles of_groups(const AttentionShape& shape, std::int64_t keys);
    // Short sequences in some heads of a group, long ones in blocks of queries of one head.
    static AttentionTiles of_queries(const AttentionShape& shape, std::int64_t keys);
    // Blocks of keys, each with all queries.
    static AttentionTiles of_keys(const AttentionShape& shape, std::int64_t keys);
    // One query head each.
    static AttentionTiles of_heads(const AttentionShape& shape, std::int64_t keys);

    std::int64_t count() const { return key_blocks_ * query_blocks_ * of_block(); }
    // Tiles with the most work, the last queries or the first keys, come first: so the threads end at about the same
    // time.
    AttentionTile at(std::int64_t index) const;
    std::int64_t keys_max() const { return tile_keys_; }  // of a tile

  private:
    AttentionTiles(const AttentionShape& shape, std::int64_t keys, std::int64_t tile_heads, std::int64_t tile_queries,
                   std::int64_t tile_keys);
    std::int64_t of_block() const { return shape_.batch * shape_.kv_heads * parts_; }

    AttentionShape shape_;
    std::int64_t keys_;
    std::int64_t tile_heads_, tile_queries_, tile_keys_;
    std::int64_t parts_, query_blocks_, key_blocks_;  // of a group of heads; of a sequence
};

// The forward pass: groups where there are enough of them for the threads, else queries. `keys`: shape.length but in
// generation.
AttentionTiles attention_forward_tiles(const AttentionShape& shape, std::int64_t keys, int threads);

// A step of generation: its scores by of_keys(), and its values by groups where there are enough, else by heads.
AttentionTiles attention_step_tiles(const AttentionShape& shape, std::int64_t keys, int threads);

// Whether the backward pass is cut in two, gradients of queries by of_queries() and of keys by of_keys(), because that
// fills so many threads; it costs seven products in place of five. Otherwise it goes by of_groups().
bool splits_attention_backward(const AttentionShape& shape, int threads);

}  // namespace atl::kernels::cpu
