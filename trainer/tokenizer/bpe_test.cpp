#include "trainer/tokenizer/bpe.h"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <random>

#include "shared/base/file.h"
#include "trainer/tokenizer/sentencepiece_words.h"

namespace atl::tokenizer {
namespace {

struct Pair {
    std::int32_t left, right, rank, merged;
};

// The definition: the pair of the lowest rank, the leftmost of equals, until there is none.
std::vector<std::int32_t> merge_slowly(std::vector<std::int32_t> symbols, const std::vector<Pair>& pairs) {
    for (;;) {
        const Pair* best = nullptr;
        std::size_t where = 0;
        for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
            for (const Pair& pair : pairs)
                if (pair.left == symbols[i] && pair.right == symbols[i + 1] && (!best || pair.rank < best->rank)) {
                    best = &pair;
                    where = i;
                }
        if (best == nullptr) return symbols;
        symbols[where] = best->merged;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
}

TEST(BpeMergesTest, TheMergesAreThoseOfTheDefinition) {
    std::mt19937 random(11);
    for (int round = 0; round < 300; ++round) {
        BpeMerges merges;
        std::vector<Pair> pairs;
        for (std::int32_t merged = 3; merged < 12; ++merged) {
            const auto below = static_cast<std::uint32_t>(merged);
            const Pair pair = {static_cast<std::int32_t>(random() % below), static_cast<std::int32_t>(random() % below),
                               static_cast<std::int32_t>(random() % 6), merged};
            const auto same = [&](const Pair& p) { return p.left == pair.left && p.right == pair.right; };
            if (std::any_of(pairs.begin(), pairs.end(), same)) continue;
            pairs.push_back(pair);
            merges.add(pair.left, pair.right, pair.rank, pair.merged);
        }
        std::vector<std::int32_t> symbols;
        for (auto i = random() % 40; i > 0; --i) symbols.push_back(static_cast<std::int32_t>(random() % 4) - 1);
        const auto expected = merge_slowly(symbols, pairs);
        merges.apply(symbols);
        ASSERT_EQ(symbols, expected) << "round " << round;
    }
}

TEST(WordCacheTest, EachWordIsEncodedOnceUntilAnotherTokenizerUsesTheCache) {
    const std::uint64_t first = WordCache::next_owner();
    int calls = 0;
    std::vector<std::int32_t> ids;
    const auto append = [&](std::uint64_t owner, const std::string& word) {
        WordCache::of_this_thread(owner).append(word, ids, [&](std::string_view text, std::vector<std::int32_t>& out) {
            ++calls;
            out.push_back(static_cast<std::int32_t>(text.size()));
        });
    };
    append(first, "abc");
    append(first, "abc");
    append(first, "de");
    EXPECT_EQ(calls, 2);
    append(WordCache::next_owner(), "abc");
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(ids, (std::vector<std::int32_t>{3, 3, 2, 3}));
}

// The word-wise encoder against the library, on texts of pieces, spaces and anything.
TEST(SentencePieceWordsTest, WordsAreEncodedAsTheLibraryEncodesTheWholeText) {
    const auto model = read_file(std::filesystem::path(ATOLL_FIXTURES) / "tokenizers/small/tokenizer.model").value();
    const auto words = SentencePieceWords::make(model);
    ASSERT_NE(words, nullptr);
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
    std::mt19937 random(5);
    const char* const atoms[] = {" ",  " ", "  ", "\xe2\x96\x81", "\n", "è",  "ř",   "the", "tre",
                                 "no", "a", "1",  "<s>",          "文", "😀", "\xff"};
    int compared = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string text;
        for (auto i = random() % 30; i > 0; --i) {
            const auto choice = random() % 24;
            text += choice < 16 ? std::string(atoms[choice]) : std::string(1, static_cast<char>('a' + random() % 26));
        }
        std::vector<std::int32_t> ids;
        if (!words->encode(text, ids)) continue;  // not UTF-8
        ++compared;
        std::vector<int> expected;
        ASSERT_TRUE(library.Encode(text, &expected).ok());
        ASSERT_EQ(ids, expected) << text;
    }
    EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace atl::tokenizer
