#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "trainer/kernels/backend.h"
#include "trainer/kernels/gpu/attention_cut.h"
#include "trainer/tensor/arena.h"

// What attention takes of a GPU's memory beside its operands. The backend allocates by it, and a plan for a card that
// is not here counts by it (kernels/planned_gpu.h), so it needs no toolkit.
namespace atl::kernels::gpu {

// --- by products (gpu_attention.cu) ---

// Of a part: scores in fp32 and what is multiplied in the format, which of fp32 takes their place.
struct AttentionScratch {
    Tensor scores, probabilities;           // [heads · queries, stride]
    Tensor totals, out_sums;                // fp32 [heads · queries, 1] and […, D]; forward
    Tensor of_probabilities, of_scores;     // as scores and probabilities; backward, as the next
    Tensor key_gradients, value_gradients;  // fp32 [heads · T, D]
};

// For queries of a sequence that see at most so many keys.
AttentionCut cut_of(const AttentionShape& shape, std::int64_t keys, bool backward);
AttentionScratch allocate_attention_scratch(tensor::Arena& arena, const AttentionShape& shape, const AttentionCut& cut,
                                            bool backward);

// --- by a library (gpu_sdpa.cu, sdpa.h) ---

enum class SdpaPass : std::uint8_t { kForward, kBackward };
struct SdpaKind {
    AttentionShape shape;
    SdpaPass pass;
    std::int64_t places = 0;  // of the list of documents; 0: each sequence is one
};

// As Backend::attention_forward and attention_backward have them, without the rotation. N = B·T rows.
struct SdpaTensors {
    Tensor qkv = {}, out = {};
    Tensor log_sums = {};  // fp32 [B, H, T], of documents [N, H]: of the exponentials of a query's scores
    // Backward only. The gradients lie side by side in rows as those of qkv; of documents each is dense.
    Tensor out_gradient = {}, query_gradient = {}, key_gradient = {}, value_gradient = {};
    // Documents only: int32 [places], and where each begins, int32 [places + 1], in elements.
    Tensor lengths = {}, first_of_qkv = {}, first_of_out = {}, first_of_keys = {}, first_of_log_sums = {};
};

inline constexpr std::int64_t kSdpaWorkspaceAlignment = 256;
// What an arena's alignment may lack of it.
inline constexpr std::int64_t kSdpaWorkspaceMore = kSdpaWorkspaceAlignment - tensor::kAlignmentBytes;

// Of documents: where each begins in each tensor, and gradients apart.
void allocate_of_documents(tensor::Arena& arena, const SdpaKind& kind, SdpaTensors& tensors);

// The workspace that a library's kernel needs for a pass; absent: it has no kernel for it.
using SdpaLibrary = std::function<std::optional<std::int64_t>(const SdpaKind&)>;
// With what we allocate for it. Absent as well where the library is not asked.
std::optional<std::int64_t> sdpa_bytes(const SdpaKind& kind, const SdpaLibrary& library);
// Of any pass, and any list of documents that a batch may have.
std::int64_t sdpa_workspace_bytes(const AttentionShape& shape, const SdpaLibrary& library);

// --- as kernels::Backend has them ---

std::int64_t attention_kept_bytes(const AttentionShape& shape);
// By products or by the library, whatever a batch takes. Without a library: by products.
std::int64_t attention_workspace_bytes(const AttentionShape& shape, const SdpaLibrary& library);
std::int64_t attention_cached_workspace_bytes(const AttentionShape& shape, std::int64_t keys_max);

}  // namespace atl::kernels::gpu
