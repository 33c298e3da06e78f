#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer/tensor/arena.h"

namespace atl::kernels::gpu {

// How attention by products cuts the scores of a sequence, [K, queries, keys] for one query head of each key/value
// head, into parts that fit in a workspace.
struct AttentionCut {
    std::int64_t queries = 0;  // of a part, at most
    std::int64_t heads = 0;    // key/value heads of a part, at most
    std::int64_t stride = 0;   // elements from one query's scores to the next one's
    std::int64_t bytes = 0;    // of a part's scores

    static constexpr std::int64_t kQueriesMax = 512;
    static constexpr std::int64_t kQueriesMin = 64;       // where there are as many
    static constexpr std::int64_t kBytesMax = 128 << 20;  // unless the least number of queries takes more
};

// `score_bytes`: how many are kept for each score. Fewer keys never take more memory, so what suffices for the longest
// sequence suffices for all.
inline AttentionCut cut_attention(std::int64_t queries, std::int64_t kv_heads, std::int64_t keys,
                                  std::int64_t score_bytes) {
    using Cut = AttentionCut;
    constexpr std::int64_t kUnit = tensor::kAlignmentBytes / 2;  // elements: rows are aligned in every format
    const std::int64_t stride = (keys + kUnit - 1) / kUnit * kUnit, row_bytes = stride * score_bytes;
    std::int64_t rows = std::min(queries, Cut::kQueriesMax);
    const std::int64_t bytes = std::min(kv_heads * rows * row_bytes,
                                        std::max(Cut::kBytesMax, std::min(queries, Cut::kQueriesMin) * row_bytes));
    while (rows > Cut::kQueriesMin && rows * row_bytes > bytes) rows = std::max(Cut::kQueriesMin, rows / 2);
    return {.queries = rows,
            .heads = std::clamp<std::int64_t>(bytes / (rows * row_bytes), 1, kv_heads),
            .stride = stride,
            .bytes = bytes};
}

}  // namespace atl::kernels::gpu
