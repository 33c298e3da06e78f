#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// Byte-pair encoding (Sennrich, Haddow, Birch, arXiv:1508.07909), what SentencePiece and byte-level tokenizers share.
namespace atl::tokenizer {

// Stands for a space in the tokens of SentencePiece: U+2581.
constexpr std::string_view kSpaceMark = "\u2581";

// The merges: neighbours (left, right) become one symbol. Immutable once filled: any number of threads may apply it.
class BpeMerges {
  public:
    // Lower ranks merge first; equal ranks from left to right. A pair that is there gets the new rank.
    void add(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t merged);
    // Merges until no neighbours can be. Symbols below 0 never merge. O(n log n).
    void apply(std::vector<std::int32_t>& symbols) const;
    std::size_t size() const { return merges_.size(); }

  private:
    struct Merge {
        std::int32_t rank;
        std::int32_t merged;
    };
    const Merge* find(std::int32_t left, std::int32_t right) const;
    std::unordered_map<std::uint64_t, Merge> merges_;
};

// Remembers the ids of words: most words of a text have been seen before. Bounded; not thread-safe.
class WordCache {
  public:
    // Appends the ids of `word` to `ids`; `encode(word, ids)` is asked for those of a word that is not known.
    template <class Encode>
    void append(std::string_view word, std::vector<std::int32_t>& ids, Encode&& encode) {
        if (word.size() > kWordBytesMax) return encode(word, ids);
        if (const auto found = words_.find(word); found != words_.end()) {
            const auto first = ids_.begin() + found->second.begin;
            ids.insert(ids.end(), first, first + found->second.count);
            return;
        }
        const auto before = static_cast<std::ptrdiff_t>(ids.size());
        encode(word, ids);
        if (words_.size() == kWordsMax) clear();
        words_.emplace(
            word, Range{static_cast<std::ptrdiff_t>(ids_.size()), static_cast<std::ptrdiff_t>(ids.size()) - before});
        ids_.insert(ids_.end(), ids.begin() + before, ids.end());
    }
    void clear();

    // This thread's cache for the tokenizer of this number (next_owner()); emptied when another one used it last.
    static WordCache& of_this_thread(std::uint64_t owner);
    static std::uint64_t next_owner();

  private:
    static constexpr std::size_t kWordBytesMax = 64;
    static constexpr std::size_t kWordsMax = 1U << 17;
    struct Range {
        std::ptrdiff_t begin;
        std::ptrdiff_t count;
    };
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    };
    std::unordered_map<std::string, Range, Hash, std::equal_to<>> words_;
    std::vector<std::int32_t> ids_;
};

}  // namespace atl::tokenizer
