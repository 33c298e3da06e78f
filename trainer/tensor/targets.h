#pragma once

#include <cstdint>
#include <span>

// What counts in the loss of a row. `labels`: of its tokens. `segment_ids`: equal neighbours are one document; none:
// the row is one.
namespace atl::tensor {

inline constexpr std::int32_t kIgnoredLabel = -100;

// Whether a row's token at `at` begins a document.
inline bool begins_document(std::span<const std::int32_t> segment_ids, std::size_t at) {
    return at == 0 || (!segment_ids.empty() && segment_ids[at] != segment_ids[at - 1]);
}

// Whether the token at `at` is a target: its label counts, and one of its document stands before it to predict it.
inline bool is_target(std::span<const std::int32_t> labels, std::span<const std::int32_t> segment_ids, std::size_t at) {
    return labels[at] != kIgnoredLabel && !begins_document(segment_ids, at);
}

inline std::int64_t count_targets(std::span<const std::int32_t> labels, std::span<const std::int32_t> segment_ids) {
    std::int64_t count = 0;
    for (std::size_t at = 0; at < labels.size(); ++at) count += is_target(labels, segment_ids, at) ? 1 : 0;
    return count;
}

}  // namespace atl::tensor
