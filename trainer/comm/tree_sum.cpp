#include "trainer/comm/tree_sum.h"

#include <algorithm>

#include "shared/base/check.h"

namespace atl::comm {
namespace {

constexpr std::size_t kBlock = 4096;  // floats of each piece worked on at once, so that they stay in the cache

}  // namespace

void tree_sum(std::span<float> pieces, std::span<float> sum) {
    const std::size_t count = sum.size();
    if (count == 0) return;
    check(pieces.size() % count == 0 && !pieces.empty(), "tree_sum: pieces of unequal length");
    const std::size_t piece_count = pieces.size() / count;
    for (std::size_t begin = 0; begin < count; begin += kBlock) {
        const std::size_t length = std::min(kBlock, count - begin);
        for (std::size_t stride = 1; stride < piece_count; stride *= 2) {
            for (std::size_t piece = 0; piece + stride < piece_count; piece += 2 * stride) {
                float* const into = &pieces[piece * count + begin];
                const float* const from = &pieces[(piece + stride) * count + begin];
                for (std::size_t i = 0; i < length; ++i) into[i] += from[i];
            }
        }
        std::copy_n(&pieces[begin], length, &sum[begin]);
    }
}

double tree_sum(std::span<double> values) {
    for (std::size_t stride = 1; stride < values.size(); stride *= 2) {
        for (std::size_t i = 0; i + stride < values.size(); i += 2 * stride) values[i] += values[i + stride];
    }
    return values.empty() ? 0 : values[0];
}

}  // namespace atl::comm
