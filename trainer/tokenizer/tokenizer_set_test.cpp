#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "trainer/tokenizer/normalizer.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/utf8.h"

// Large sets of odd strings, made by the rules of tests/numerics/make_tokenizer_set_goldens.py, against digests of what
// the references encode them to.
namespace atl::tokenizer {
namespace {

const std::filesystem::path kTokenizerSets = std::filesystem::path(ATOLL_FIXTURES) / "tokenizers";
constexpr std::size_t kCharactersAText = 32;

std::string utf8(std::uint32_t code) {
    const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
    if (code < 0x80) return {static_cast<char>(code)};
    if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), tail(0)};
    if (code < 0x10000) return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
    return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

std::vector<std::string> texts_of_ranges(const nlohmann::json& ranges) {
    std::vector<std::string> texts;
    std::size_t characters = 0;
    for (const auto& range : ranges) {
        for (std::uint32_t code = range[0]; code <= range[1].get<std::uint32_t>(); ++code) {
            if (characters++ % kCharactersAText == 0) texts.resize(texts.size() + 2);
            texts[texts.size() - 2] += utf8(code);
            texts.back() += " " + utf8(code);
        }
    }
    return texts;
}

std::vector<std::string> texts_of_alphabet(const nlohmann::json& group) {
    std::vector<std::string> alphabet;
    for (const std::string hex : group["alphabet_hex"]) {
        std::string& piece = alphabet.emplace_back();
        for (std::size_t i = 0; i < hex.size(); i += 2)
            piece.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    std::uint64_t state = group["seed"];
    const auto below = [&](std::uint64_t count) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return (state >> 33) % count;
    };
    std::vector<std::string> texts(group["texts"].get<std::size_t>());
    for (std::string& text : texts) {
        const std::uint64_t pieces = below(group["pieces_max"]) + 1;
        for (std::uint64_t i = 0; i < pieces; ++i) text += alphabet[below(alphabet.size())];
    }
    return texts;
}

std::vector<std::string> texts_of(const nlohmann::json& group) {
    return group.contains("ranges") ? texts_of_ranges(group["ranges"]) : texts_of_alphabet(group);
}

std::string digest_of(const std::vector<std::string>& texts, const Tokenizer& tokenizer) {
    digest::Sha256 hash;
    std::vector<std::int32_t> ids;
    for (const std::string& text : texts) {
        ids.assign(1, 0);
        check(tokenizer.encode(text, ids).ok(), "cannot encode");
        ids[0] = static_cast<std::int32_t>(ids.size()) - 1;
        const auto bytes = std::as_bytes(std::span(ids));
        hash.update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return hash.finish();
}

class TokenizerSetTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerSetTest, EveryCharacterAndRandomTextsAreEncodedAsByTheReference) {
    const auto tokenizer = Tokenizer::open(kTokenizerSets / GetParam()).value();
    const auto golden = nlohmann::json::parse(read_file(kTokenizerSets / "set.json").value());
    std::size_t texts_seen = 0;
    for (const auto& group : golden["groups"]) {
        const auto texts = texts_of(group);
        texts_seen += texts.size();
        ASSERT_EQ(texts.size(), group["count"]) << group["name"];
        EXPECT_EQ(digest_of(texts, *tokenizer), group["sha256"][GetParam()].get<std::string>()) << group["name"];
    }
    EXPECT_GT(texts_seen, 25000U);
}
INSTANTIATE_TEST_SUITE_P(All, TokenizerSetTest, testing::Values("small", "gpt2", "opt", "llama3", "qwen"));

class NormalizerSetTest : public testing::TestWithParam<const char*> {};

TEST_P(NormalizerSetTest, EveryCharacterAndRandomTextsAreNormalizedAsByTheReference) {
    const NormalForm form = parse_normal_form(GetParam()).value();
    const auto golden = nlohmann::json::parse(read_file(kTokenizerSets / "set.json").value());
    for (const auto& group : golden["groups"]) {
        digest::Sha256 hash;
        for (const std::string& text : texts_of(group)) hash.update(normalized(with_utf8_replaced(text), form) + "\n");
        EXPECT_EQ(hash.finish(), group["normalized"][GetParam()].get<std::string>()) << group["name"];
    }
}
// Sorting half a million marks one step at a time would take hours.
TEST(NormalizerTest, ALongRunOfMarksIsOrderedAtOnce) {
    std::string above, below;
    for (int i = 0; i < 500'000; ++i) {
        above += "\u0345";  // class 240
        below += "\u0334";  // class 1
    }
    EXPECT_TRUE(normalized("a" + above + below, NormalForm::kNfc) == "a" + below + above);
}

INSTANTIATE_TEST_SUITE_P(All, NormalizerSetTest, testing::Values("NFC", "NFD", "NFKC", "NFKD"));

}  // namespace
}  // namespace atl::tokenizer
