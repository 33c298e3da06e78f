#include "trainer/tokenizer/bpe.h"

#include <atomic>
#include <queue>
#include <tuple>

namespace atl::tokenizer {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

// A merge that was possible when it was queued.
struct Candidate {
    std::int32_t rank;
    std::int32_t position;  // of the left symbol
    std::int32_t right_position;
    std::int32_t left;
    std::int32_t right;
    std::int32_t merged;
    // For a queue whose top is the lowest rank, the leftmost of equals.
    bool operator<(const Candidate& other) const {
        return std::tie(rank, position) > std::tie(other.rank, other.position);
    }
};

constexpr std::int32_t kGone = -1'000'000'000;

}  // namespace

void BpeMerges::add(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t merged) {
    merges_.insert_or_assign(pair_key(left, right), Merge{rank, merged});
}

const BpeMerges::Merge* BpeMerges::find(std::int32_t left, std::int32_t right) const {
    if (left < 0 || right < 0) return nullptr;
    const auto found = merges_.find(pair_key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerges::apply(std::vector<std::int32_t>& symbols) const {
    const auto count = static_cast<std::int32_t>(symbols.size());
    if (count < 2) return;
    std::vector<std::int32_t> next(symbols.size());
    std::vector<std::int32_t> previous(symbols.size());
    std::priority_queue<Candidate> queue;
    const auto at = [&](std::int32_t position) -> std::int32_t& { return symbols[static_cast<std::size_t>(position)]; };
    const auto consider = [&](std::int32_t left, std::int32_t right) {
        if (left < 0 || right >= count) return;
        if (const Merge* merge = find(at(left), at(right)))
            queue.push({merge->rank, left, right, at(left), at(right), merge->merged});
    };
    for (std::int32_t i = 0; i < count; ++i) {
        next[static_cast<std::size_t>(i)] = i + 1;
        previous[static_cast<std::size_t>(i)] = i - 1;
        consider(i - 1, i);
    }
    while (!queue.empty()) {
        const Candidate best = queue.top();
        queue.pop();
        // Stale when one side has merged with something else since.
        if (at(best.position) != best.left || at(best.right_position) != best.right ||
            next[static_cast<std::size_t>(best.position)] != best.right_position)
            continue;
        const std::int32_t after = next[static_cast<std::size_t>(best.right_position)];
        at(best.position) = best.merged;
        at(best.right_position) = kGone;
        next[static_cast<std::size_t>(best.position)] = after;
        if (after < count) previous[static_cast<std::size_t>(after)] = best.position;
        consider(previous[static_cast<std::size_t>(best.position)], best.position);
        consider(best.position, after);
    }
    std::erase(symbols, kGone);
}

void WordCache::clear() {
    words_.clear();
    ids_.clear();
}

WordCache& WordCache::of_this_thread(std::uint64_t owner) {
    thread_local std::uint64_t last_owner = 0;
    thread_local WordCache cache;
    if (last_owner != owner) cache.clear();
    last_owner = owner;
    return cache;
}

std::uint64_t WordCache::next_owner() {
    static std::atomic<std::uint64_t> owner{0};
    return ++owner;
}

}  // namespace atl::tokenizer
