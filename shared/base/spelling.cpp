#include "shared/base/spelling.h"

#include <algorithm>

namespace atl {
namespace {

// What somebody mistyped is no longer, and is looked for among no more; the rest is a stranger's, and would take long.
constexpr std::size_t kWordMax = 64;
constexpr std::size_t kCandidatesMax = 10'000;

// Letters to insert, delete, replace or swap with their neighbour (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
    for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i)
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    return cost[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
    if (word.size() > kWordMax || candidates.size() > kCandidatesMax) return {};
    std::string best;
    std::size_t best_distance = 1 + std::max<std::size_t>(1, word.size() / 3);
    for (const std::string& candidate : candidates) {
        if (candidate.size() >= word.size() + best_distance) continue;
        const std::size_t it = distance(word, candidate);
        if (it < best_distance && it < candidate.size()) best = candidate, best_distance = it;
    }
    if (!best.empty() || word.empty()) return best;
    const auto begins = [&](const std::string& candidate) { return candidate.starts_with(word); };
    if (std::count_if(candidates.begin(), candidates.end(), begins) == 1)
        return *std::find_if(candidates.begin(), candidates.end(), begins);
    return {};
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
    const std::string meant = nearest(word, candidates);
    return meant.empty() ? "" : "; did you mean " + meant + "?";
}

}  // namespace atl
