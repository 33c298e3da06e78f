#include "trainer/kernels/gpu/cudnn_workspace.h"

#include <algorithm>

namespace atl::kernels::gpu {
namespace {

constexpr std::int64_t kFp32Bytes = 4, kHalfBytes = 2;

// Elements of the queries of all heads, and of one number a query.
std::int64_t query_elements(const AttentionShape& shape) {
    return shape.batch * shape.length * shape.heads * shape.head_channels;
}
std::int64_t query_count(const AttentionShape& shape) {
    return shape.batch * shape.length * shape.heads;
}
bool is_grouped(const AttentionShape& shape) {
    return shape.heads != shape.kv_heads;
}

// Descriptors of each document's part of a tensor.
std::int64_t forward_bytes_on_hopper(std::int64_t places) {
    constexpr std::int64_t kPlacesMin = 64, kBytesAPlace = 256, kMore = 768, kWithoutDocuments = 256;
    return places == 0 ? kWithoutDocuments : std::max(kPlacesMin, places) * kBytesAPlace + kMore;
}

// Sums of the queries' gradients in fp32, what the gradients of a query's scores have in common, and where several
// heads share a key its gradient and its value's of each of them.
std::int64_t backward_bytes_on_hopper(const SdpaKind& kind) {
    const std::int64_t elements = query_elements(kind.shape), sums = (elements + query_count(kind.shape)) * kFp32Bytes;
    const std::int64_t grouped = is_grouped(kind.shape) ? 2 * elements : 0;
    if (kind.places == 0) return sums + grouped * kHalfBytes + 256;
    constexpr std::int64_t kBytesAPlace = 448, kMore = 1152;
    return sums + grouped * kFp32Bytes + kind.places * kBytesAPlace + kMore;
}

// As above; the gradients of keys and values are apart in any case, and where they are shared in fp32.
std::int64_t backward_bytes_on_ampere(const AttentionShape& shape) {
    constexpr std::int64_t kQueries = 8;  // sums are of a multiple of so many
    AttentionShape filled = shape;
    filled.length = (shape.length + kQueries - 1) / kQueries * kQueries;
    return (query_elements(filled) + query_count(shape)) * kFp32Bytes +
           2 * query_elements(shape) * (is_grouped(shape) ? kFp32Bytes : kHalfBytes) + 128;
}

}  // namespace

std::optional<std::int64_t> cudnn_workspace_bytes(int architecture, const SdpaKind& kind) {
    constexpr int kHopper = 90;
    constexpr std::int64_t kChannelsMaxBackward = 128;  // before Hopper
    if (architecture >= kHopper && kind.shape.length == 1) return std::nullopt;
    if (architecture >= kHopper)
        return kind.pass == SdpaPass::kForward ? forward_bytes_on_hopper(kind.places) : backward_bytes_on_hopper(kind);
    if (kind.places > 0) return std::nullopt;  // sdpa_cudnn.cpp asks for none
    if (kind.pass == SdpaPass::kForward) return 0;
    if (kind.shape.head_channels > kChannelsMaxBackward || kind.shape.length == 1) return std::nullopt;
    return backward_bytes_on_ampere(kind.shape);
}

}  // namespace atl::kernels::gpu
