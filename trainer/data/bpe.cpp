#include "trainer/data/bpe.h"

#include <atomic>
#include <cstring>
#include <queue>
#include <tuple>

namespace atl::data {
namespace {

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
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
    merges_.emplace(key_of(left, right), Merge{rank, merged});
}

const BpeMerges::Merge* BpeMerges::find(std::int32_t left, std::int32_t right) const {
    if (left < 0 || right < 0) return nullptr;
    const auto found = merges_.find(key_of(left, right));
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

int utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto continues = [&](std::size_t i) { return i < text.size() && (byte(i) & 0xc0) == 0x80; };
    if (text.empty()) return 0;
    const unsigned first = byte(0);
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4 || !continues(1)) return 0;
    if (first < 0xe0) return 2;
    if (!continues(2)) return 0;
    const unsigned second = byte(1);
    if (first == 0xe0 && second < 0xa0) return 0;
    if (first == 0xed && second > 0x9f) return 0;
    if (first < 0xf0) return 3;
    if (!continues(3) || (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
    return 4;
}

bool is_utf8(std::string_view text) {
    constexpr std::uint64_t kHighBits = 0x8080808080808080ULL;
    while (!text.empty()) {
        std::uint64_t eight = 0;
        if (text.size() >= sizeof eight) std::memcpy(&eight, text.data(), sizeof eight);
        const bool ascii = text.size() >= sizeof eight && (eight & kHighBits) == 0;
        const int length = ascii ? static_cast<int>(sizeof eight) : utf8_length(text);
        if (length == 0) return false;
        text.remove_prefix(static_cast<std::size_t>(length));
    }
    return true;
}

}  // namespace atl::data
