#pragma once

#include <algorithm>
#include <cstdint>

// What the GPU's backend takes for itself at its start, and what it asks to be given, as numbers: a plan for a card
// that is not here counts by them too (kernels/planned_gpu.h).
namespace atl::kernels::gpu {

inline constexpr std::int64_t kProductWorkspaceBytes = 32 << 20;  // what NVIDIA advises for Hopper
inline constexpr std::int64_t kScratchBytes = 32 << 20;           // of products whose operands are converted
inline constexpr std::int64_t kSumBlocks = 512;                   // of a sum over all elements: a partial sum each
inline constexpr std::int64_t kSumsBytes = kSumBlocks * static_cast<std::int64_t>(sizeof(double));
inline constexpr std::int64_t kCorrectionsBytes = 2 * static_cast<std::int64_t>(sizeof(float));  // of AdamW's biases
inline constexpr std::int64_t kBookValues = 16 + 256;  // NF4's, then those that its factors are codes of
inline constexpr std::int64_t kBooksBytes = kBookValues * static_cast<std::int64_t>(sizeof(float));
inline constexpr std::int64_t kOwnBytes =
    kProductWorkspaceBytes + kScratchBytes + kSumsBytes + kCorrectionsBytes + kBooksBytes;

// Backend::loss_rows().
constexpr std::int64_t loss_rows(std::int64_t vocabulary) {
    constexpr std::int64_t kLogits = std::int64_t{1} << 28, kRowsMin = 2048;
    return std::max(kRowsMin, kLogits / vocabulary);
}

}  // namespace atl::kernels::gpu
