#include "trainer/kernels/gpu/attention_memory.h"

#include <algorithm>
#include <limits>

#include "trainer/kernels/formats.h"

namespace atl::kernels::gpu {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

constexpr std::int64_t score_bytes(DType format, bool backward) {
    return (backward ? 2 : 1) * (tensor::size_bytes(DType::kF32) + (format == DType::kF32 ? 0 : size_bytes(format)));
}

// Of one sequence and query head; where there is one query, of the heads that share a key.
std::int64_t part_queries(const AttentionShape& shape) {
    return shape.length == 1 ? shape.heads / shape.kv_heads : shape.length;
}

// Two matrices of a cut's scores side by side in memory, the second in the format.
struct ScorePair {
    Tensor wide, narrow;
    std::int64_t bytes;
};
ScorePair score_pair(std::byte* at, const AttentionCut& cut, DType format) {
    const std::int64_t rows = cut.heads * cut.queries, wide_bytes = tensor::size_bytes(DType::kF32, rows * cut.stride);
    const Tensor wide(at, DType::kF32, {rows, cut.stride});
    if (format == DType::kF32) return {wide, wide, wide_bytes};
    return {wide, Tensor(at + wide_bytes, format, {rows, cut.stride}),
            wide_bytes + tensor::size_bytes(format, rows * cut.stride)};
}

std::int64_t products_workspace_bytes(const AttentionShape& shape, std::int64_t keys, bool backward) {
    Arena arena = Arena::measuring();
    allocate_attention_scratch(arena, shape, cut_of(shape, keys, backward), backward);
    return arena.peak_bytes();
}

std::int64_t rows_of(const AttentionShape& shape) {
    return shape.batch * shape.length;
}

// The longest list that a batch may have.
std::int64_t most_places(const AttentionShape& shape) {
    std::int64_t places = 1;
    while (places < std::min(kDocumentsMax, rows_of(shape))) places *= 2;
    return places;
}

// Kernels of libraries are in half formats, move 16 bytes at once and count elements in 32 bits.
bool may_have_kernel(const AttentionShape& shape) {
    constexpr std::int64_t kChannels = 8;
    return shape.format != DType::kF32 && shape.head_channels % kChannels == 0 &&
           rows_of(shape) * shape.qkv_columns() <= std::numeric_limits<std::int32_t>::max();
}

}  // namespace

AttentionCut cut_of(const AttentionShape& shape, std::int64_t keys, bool backward) {
    return cut_attention(part_queries(shape), shape.kv_heads, keys, score_bytes(shape.format, backward));
}

// Sums of out are for as many rows as any part has: with fewer keys it may have more of them.
AttentionScratch allocate_attention_scratch(Arena& arena, const AttentionShape& shape, const AttentionCut& cut,
                                            bool backward) {
    const auto allocate = [&](std::int64_t rows, std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, DType::kF32, {rows, columns});
    };
    std::byte* const memory = arena.allocate_bytes(Category::kWorkspace, cut.bytes);
    AttentionScratch scratch;
    if (backward) {
        scratch.key_gradients = allocate(cut.heads * shape.length, shape.head_channels);
        scratch.value_gradients = allocate(cut.heads * shape.length, shape.head_channels);
    } else {
        const std::int64_t rows = shape.kv_heads * std::min(part_queries(shape), AttentionCut::kQueriesMax);
        scratch.totals = allocate(rows, 1);
        scratch.out_sums = allocate(rows, shape.head_channels);
    }
    if (arena.is_measuring()) return scratch;
    const ScorePair first = score_pair(memory, cut, shape.format);
    scratch.scores = first.wide;
    scratch.probabilities = first.narrow;
    if (backward) {
        const ScorePair second = score_pair(memory + first.bytes, cut, shape.format);
        scratch.of_probabilities = second.wide;
        scratch.of_scores = second.narrow;
    }
    return scratch;
}

void allocate_of_documents(Arena& arena, const SdpaKind& kind, SdpaTensors& tensors) {
    for (Tensor* first :
         {&tensors.first_of_qkv, &tensors.first_of_out, &tensors.first_of_keys, &tensors.first_of_log_sums})
        *first = arena.allocate(Category::kWorkspace, DType::kI32, {kind.places + 1});
    if (kind.pass == SdpaPass::kForward) return;
    const AttentionShape& shape = kind.shape;
    const auto allocate = [&](std::int64_t heads) {
        return arena.allocate(Category::kWorkspace, shape.format, {rows_of(shape), heads * shape.head_channels});
    };
    tensors.query_gradient = allocate(shape.heads);
    tensors.key_gradient = allocate(shape.kv_heads);
    tensors.value_gradient = allocate(shape.kv_heads);
}

std::optional<std::int64_t> sdpa_bytes(const SdpaKind& kind, const SdpaLibrary& library) {
    if (!library || !may_have_kernel(kind.shape)) return {};
    const auto bytes = library(kind);
    if (!bytes) return {};
    Arena arena = Arena::measuring();
    SdpaTensors tensors;
    if (kind.places > 0) allocate_of_documents(arena, kind, tensors);
    return arena.peak_bytes() + (*bytes == 0 ? 0 : tensor::aligned(*bytes + kSdpaWorkspaceMore));
}

std::int64_t sdpa_workspace_bytes(const AttentionShape& shape, const SdpaLibrary& library) {
    std::int64_t most = 0;
    for (const SdpaPass pass : {SdpaPass::kForward, SdpaPass::kBackward}) {
        for (const std::int64_t places : {std::int64_t{0}, most_places(shape)})
            most = std::max(most, sdpa_bytes({shape, pass, places}, library).value_or(0));
    }
    return most;
}

std::int64_t attention_kept_bytes(const AttentionShape& shape) {
    return tensor::size_bytes(kStatistics, shape.batch * shape.heads * shape.length);
}

std::int64_t attention_workspace_bytes(const AttentionShape& shape, const SdpaLibrary& library) {
    return std::max({products_workspace_bytes(shape, shape.length, false),
                     products_workspace_bytes(shape, shape.length, true), sdpa_workspace_bytes(shape, library)});
}

// For steps of one token too, as a prompt is followed by these.
std::int64_t attention_cached_workspace_bytes(const AttentionShape& shape, std::int64_t keys_max) {
    AttentionShape step = shape;
    step.length = 1;
    return std::max(products_workspace_bytes(shape, keys_max, false), products_workspace_bytes(step, keys_max, false));
}

}  // namespace atl::kernels::gpu
