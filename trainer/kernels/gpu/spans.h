#pragma once

#include <cstdint>
#include <vector>

#include "trainer/kernels/gpu/packs.h"

// Kernels over many ranges of elements in one launch.
namespace atl::kernels::gpu {

// As many ranges as the arguments of a kernel have room for (4 KB on some GPUs), in chunks that are numbered through.
// Range has `count` elements, which kWidth divides.
template <class Range, int kWidth>
struct Spans {
    static constexpr int kRangesMax = 32, kPacks = 4;  // of a thread in a chunk
    static constexpr std::int64_t kChunk = static_cast<std::int64_t>(kThreads) * kWidth * kPacks;

    Range ranges[kRangesMax];
    int first_chunks[kRangesMax + 1];

    __device__ int chunks() const { return first_chunks[kRangesMax]; }
    // Which range a chunk is of, at or after `range`.
    __device__ int find(int chunk, int range = 0) const {
        while (chunk >= first_chunks[range + 1]) ++range;
        return range;
    }
    // body(range, i) for each pack of the thread's in a chunk.
    template <class Body>
    __device__ void each_pack(const Range& range, int chunk_of_range, int thread, const Body& body) const {
        const std::int64_t begin = chunk_of_range * kChunk + thread * kWidth;
        for (int pack = 0; pack < kPacks; ++pack) {
            const std::int64_t i = begin + static_cast<std::int64_t>(pack) * kThreads * kWidth;
            if (i < range.count) body(i);
        }
    }
};

// Calls handle(spans, chunks) for as many Spans as hold these ranges.
template <int kWidth, class Range, class Handle>
void for_spans(const std::vector<Range>& all, const Handle& handle) {
    using Of = Spans<Range, kWidth>;
    for (std::size_t first = 0; first < all.size(); first += Of::kRangesMax) {
        Of spans{};
        std::int64_t chunks = 0;
        for (std::size_t i = 0; i < Of::kRangesMax; ++i) {
            spans.first_chunks[i] = static_cast<int>(chunks);
            if (first + i >= all.size()) continue;
            spans.ranges[i] = all[first + i];
            chunks += (all[first + i].count + Of::kChunk - 1) / Of::kChunk;
            check(chunks < (std::int64_t{1} << 31), "too many elements for one kernel");
        }
        spans.first_chunks[Of::kRangesMax] = static_cast<int>(chunks);
        handle(spans, chunks);
    }
}

}  // namespace atl::kernels::gpu
