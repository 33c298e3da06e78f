#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

namespace atl::tensor {

// The places 0 … N − 1 of these ids, sorted by id, and those of one id in ascending order.
inline void sort_by_id(std::span<const std::int32_t> ids, std::span<std::int32_t> places) {
    std::iota(places.begin(), places.end(), 0);
    std::ranges::stable_sort(places, {}, [&](std::int32_t place) { return ids[static_cast<std::size_t>(place)]; });
}

}  // namespace atl::tensor
