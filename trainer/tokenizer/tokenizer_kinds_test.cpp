#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "trainer/tokenizer/bpe_tokenizer.h"
#include "trainer/tokenizer/decoder_steps.h"

// Tokenizers of every kind that a tokenizer.json may be, against digests of what the tokenizers library makes of odd
// texts (tests/numerics/make_tokenizer_kinds_goldens.py, which also makes a larger file: ATOLL_TOKENIZER_KINDS names
// it).
namespace atl::tokenizer {
namespace {

constexpr std::size_t kDigitsOfDigest = 8;
constexpr std::size_t kControlTexts = 1000;

struct Kinds {
    nlohmann::json file;
    std::vector<std::string> texts;
};

std::string bytes_of_hex(const std::string& hex) {
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

Kinds read_kinds(const std::filesystem::path& path) {
    Kinds result;
    result.file = nlohmann::json::parse(read_file(path).value());
    for (const std::string hex : result.file["texts_hex"]) result.texts.push_back(bytes_of_hex(hex));
    return result;
}

// Those of the fixture.
const Kinds& known_kinds() {
    static const Kinds read = read_kinds(std::filesystem::path(ATOLL_FIXTURES) / "tokenizers" / "kinds.json");
    return read;
}

// Those to test: of the fixture, or of the larger file.
const Kinds& kinds() {
    static const char* const named = std::getenv("ATOLL_TOKENIZER_KINDS");
    static const Kinds read = named != nullptr ? read_kinds(named) : known_kinds();
    return read;
}

// The tokenizer.json of a kind, with one of its values changed where `change` is no null.
std::string tokenizer_json(const nlohmann::json& kind, const nlohmann::json& change) {
    nlohmann::json json = kind["tokenizer"];
    if (!change.is_null()) json[nlohmann::json::json_pointer(change["pointer"].get<std::string>())] = change["value"];
    const nlohmann::json& model = known_kinds().file["models"][kind["model"].get<std::string>()];
    for (const char* key : {"vocab", "merges"}) json["model"][key] = model[key];
    if (json["added_tokens"].is_null()) json["added_tokens"] = model["added_tokens"];
    return json.dump();
}

std::string digest_of_text(const Tokenizer& tokenizer, const std::string& text) {
    std::vector<std::int32_t> ids;
    const Status status = tokenizer.encode(text, ids);
    check(status.ok(), status.ok() ? "" : status.error().message);
    const auto bytes = std::as_bytes(std::span(ids));
    std::string data(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    data += tokenizer.decode(ids);
    std::reverse(ids.begin(), ids.end());
    data += tokenizer.decode(ids);
    return digest::sha256(data).substr(0, kDigitsOfDigest);
}

// Those of the first `count` texts that the tokenizer does not encode and decode as the digests say.
std::vector<std::size_t> texts_that_differ(const std::string& json, const std::string& digests, std::size_t count) {
    const auto tokenizer = BpeTokenizer::from_json(json, {});
    check(tokenizer.ok(), tokenizer.ok() ? "" : tokenizer.error().message);
    std::vector<std::size_t> differing;
    for (std::size_t i = 0; i < std::min(count, kinds().texts.size()); ++i)
        if (digest_of_text(**tokenizer, kinds().texts[i]) != digests.substr(i * kDigitsOfDigest, kDigitsOfDigest))
            differing.push_back(i);
    return differing;
}

TEST(TokenizerKindsTest, OddTextsAreEncodedAndDecodedAsByTheReference) {
    ASSERT_GT(kinds().texts.size(), 100U);
    ASSERT_GT(kinds().file["kinds"].size(), 0U);
    for (const auto& kind : kinds().file["kinds"]) {
        const auto differing = texts_that_differ(tokenizer_json(kind, nullptr), kind["digests"], kinds().texts.size());
        EXPECT_TRUE(differing.empty()) << kind["name"] << ": " << differing.size() << " texts, the first is number "
                                       << differing.front() << " of texts_hex";
    }
}

TEST(TokenizerKindsTest, OneThingChangedGivesOtherIdsAsToTheReference) {
    for (const auto& kind : kinds().file["kinds"]) {
        const auto differing = texts_that_differ(tokenizer_json(kind, kind["control"]), kind["digests"], kControlTexts);
        EXPECT_EQ(differing.size(), kind["control_differs"]) << kind["name"] << " with " << kind["control"];
        EXPECT_GT(differing.size(), 0U);
    }
}

// The tokenizer.json of the fixture's kind of that name.
std::string json_of(const std::string& name) {
    for (const auto& kind : known_kinds().file["kinds"])
        if (kind["name"] == name) return tokenizer_json(kind, nullptr);
    check(false, "no kind " + name);
    return {};
}

std::vector<std::int32_t> ids_of(const Tokenizer& tokenizer, const std::string& text, bool behind) {
    std::vector<std::int32_t> ids;
    const Status status = behind ? tokenizer.encode_behind(text, ids) : tokenizer.encode(text, ids);
    check(status.ok(), status.ok() ? "" : status.error().message);
    return ids;
}

// As the library does with the part of a text that follows a special token.
TEST(TokenizerKindsTest, OnlyWhatIsPutBeforeEachPartIsPutBehindASpecialToken) {
    const auto differs = [&](const char* name, const char* text) {
        const auto tokenizer = BpeTokenizer::from_json(json_of(name), {}).value();
        return ids_of(*tokenizer, text, true) != ids_of(*tokenizer, text, false);
    };
    EXPECT_FALSE(differs("llama-of-transformers-4", "Il treno"));
    EXPECT_TRUE(differs("llama-of-transformers-5", "Il treno"));
    EXPECT_TRUE(differs("metaspace-first-True", "Il treno"));
    EXPECT_FALSE(differs("metaspace-first-True", " treno")) << "which has a space";
    EXPECT_FALSE(differs("metaspace-always-True", "Il treno"));
    EXPECT_FALSE(differs("smollm2", "Il treno"));
}

// A word of millions of characters: anything quadratic would take hours.
TEST(TokenizerKindsTest, ALongTextWithoutSpacesIsEncodedAtOnce) {
    std::string text;
    for (std::size_t i = 0; text.size() < (2U << 20); ++i) text += i % 7 == 0 ? "\u4e00\u00e8" : "treno";
    for (const char* name : {"llama-of-transformers-4", "llama-of-transformers-5", "gemma-of-transformers-5",
                             "unknown-characters-vanish", "deepseek-v2", "falcon"}) {
        const auto tokenizer = BpeTokenizer::from_json(json_of(name), {}).value();
        EXPECT_GT(ids_of(*tokenizer, text, false).size(), text.size() / 10) << name;
    }
}

// A short run of what trainer/tokenizer/tokenizer_json_fuzz.cpp does for longer.
TEST(TokenizerKindsTest, NoMutationOfAnyKindGivesIdsOutsideItsVocabulary) {
    std::mt19937 draw(1);
    int opened = 0;
    for (const auto& kind : known_kinds().file["kinds"]) {
        // What surrounds the model, which is what differs: mutated, and then with the model.
        const std::string good = kind["tokenizer"].dump();
        for (int round = 0; round < 30; ++round) {
            std::string text = good;
            for (unsigned edits = draw() % 3 + 1; edits > 0; --edits) {
                const std::size_t at = draw() % text.size();
                const char* pieces[] = {"", "0", "9", "null", "true", "{", "]", "\"", "a", "\\s", "\u2581", " "};
                text.replace(at, draw() % 3, pieces[draw() % std::size(pieces)]);
            }
            nlohmann::json mutated = kind;
            mutated["tokenizer"] = nlohmann::json::parse(text, nullptr, false);
            if (!mutated["tokenizer"].is_object() || !mutated["tokenizer"]["model"].is_object()) continue;
            const auto tokenizer = BpeTokenizer::from_json(tokenizer_json(mutated, nullptr), {});
            if (!tokenizer.ok()) continue;
            ++opened;
            std::vector<std::int32_t> ids;
            check((*tokenizer)->encode("<tool>x città\u2581it's  12345\n", ids).ok(), "cannot encode");
            for (const std::int32_t id : ids) ASSERT_TRUE(id >= 0 && id < (*tokenizer)->vocab_size()) << text;
            (*tokenizer)->decode(ids);
        }
    }
    EXPECT_GT(opened, 100) << "some mutations must be harmless";
}

// A Sequence of `count` steps, those of `steps` in turn.
nlohmann::json sequence_of(const char* key, const std::vector<nlohmann::json>& steps, std::size_t count) {
    nlohmann::json inner = nlohmann::json::array();
    for (std::size_t i = 0; i < count; ++i) inner.push_back(steps[i % steps.size()]);
    return {{"type", "Sequence"}, {key, inner}};
}

TEST(TokenizerKindsTest, StepsThatDoubleATextEachAreStopped) {
    auto json = nlohmann::json::parse(json_of("llama-of-transformers-4"));
    const nlohmann::json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
    json["added_tokens"] = nlohmann::json::array();
    json["normalizer"] = sequence_of("normalizers", {step}, 60);
    json["decoder"] = sequence_of("decoders", {step}, 60);
    const auto tokenizer = BpeTokenizer::from_json(json.dump(), {}).value();
    std::vector<std::int32_t> ids;
    const Status status = tokenizer->encode("a", ids);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().field, "normalizer");
    ASSERT_TRUE(tokenizer->encode("b", ids).ok());
    // The limit is one for all tokens, and a step is applied to all of them or to none.
    const auto a = json["model"]["vocab"]["a"].get<std::int32_t>();
    const std::string decoded = tokenizer->decode(std::vector<std::int32_t>(64, a));
    EXPECT_EQ(decoded.size(), 1U << 20);
    EXPECT_EQ(decoded.find_first_not_of('a'), std::string::npos);
}

// Each of two Metaspaces puts its character before the words that the other one's split left without it.
TEST(TokenizerKindsTest, MetaspacesThatMultiplyWordsAreStopped) {
    const auto metaspace = [](const char* replacement) {
        return nlohmann::json{
            {"type", "Metaspace"}, {"replacement", replacement}, {"prepend_scheme", "always"}, {"split", true}};
    };
    auto json = nlohmann::json::parse(json_of("llama-of-transformers-4"));
    json["normalizer"] = nullptr;
    const auto encode = [&](std::size_t steps, const std::string& text, std::vector<std::int32_t>& ids) {
        json["pre_tokenizer"] = sequence_of("pretokenizers", {metaspace("a"), metaspace("b")}, steps);
        return BpeTokenizer::from_json(json.dump(), {}).value()->encode(text, ids);
    };
    for (const std::string& text : {std::string("x"), std::string(1000, 'x'), std::string(1000, ' ')}) {
        std::vector<std::int32_t> ids;
        ASSERT_TRUE(encode(4, text, ids).ok()) << text.size();
        ids.clear();
        const Status status = encode(28, text, ids);
        ASSERT_FALSE(status.ok()) << text.size() << " characters gave " << ids.size() << " tokens";
        EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
        EXPECT_EQ(status.error().field, "pre_tokenizer");
    }
}

TEST(TokenizerKindsTest, AStripOfAnyLengthTakesOnlyItsCharacter) {
    constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
    const auto strip = [](std::size_t start, std::size_t stop, std::string token) {
        return decode_tokens({{.kind = DecoderStep::Kind::kStrip, .pattern = "\u2581", .start = start, .stop = stop}},
                             {std::move(token)});
    };
    const std::string marks = "\u2581\u2581\u2581";
    EXPECT_EQ(strip(2, 1, marks + "x" + marks), "\u2581x\u2581\u2581");
    EXPECT_EQ(strip(0, 2, marks + "x" + marks), marks + "x\u2581");
    EXPECT_EQ(strip(kNoLimit, kNoLimit, marks + "x y" + marks), "x y");
    EXPECT_EQ(strip(kNoLimit, kNoLimit, marks), "");
    EXPECT_EQ(strip(2, 2, marks), "");
    std::string long_text;  // anything quadratic would take hours
    for (std::size_t i = 0; i < (4U << 20); ++i) long_text += "\u2581";
    EXPECT_EQ(strip(kNoLimit, 0, long_text + "x"), "x");
}

// The pattern of a Replace and of a Split are read alike, but an error names where the pattern stands.
TEST(TokenizerKindsTest, AWrongExpressionIsReportedInItsField) {
    const nlohmann::json patterns[] = {{{"Regex", "[a&&b]"}}, {{"Regex", "a("}}, {{"Regex", "a*"}}, {{"String", ""}}};
    const auto open = [](const char* field, const nlohmann::json& pattern) {
        auto json = nlohmann::json::parse(json_of("llama-of-transformers-4"));
        json[field] = std::string(field) == "normalizer"
                          ? nlohmann::json{{"type", "Replace"}, {"pattern", pattern}, {"content", ""}}
                          : nlohmann::json{{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}};
        return BpeTokenizer::from_json(json.dump(), {});
    };
    for (const std::string field : {"normalizer", "pre_tokenizer"}) {
        for (const nlohmann::json& pattern : patterns) {
            const auto opened = open(field.c_str(), pattern);
            ASSERT_FALSE(opened.ok()) << pattern;
            EXPECT_EQ(opened.error().field, field) << pattern;
            EXPECT_TRUE(opened.error().message.starts_with(field + ": ")) << opened.error().message;
            EXPECT_EQ(opened.error().message.find("pre-tokenizer"), std::string::npos) << opened.error().message;
        }
        // One that is right, but runs away.
        std::vector<std::int32_t> ids;
        const Status status =
            open(field.c_str(), {{"Regex", "(a+)+$"}}).value()->encode(std::string(40, 'a') + "b", ids);
        ASSERT_FALSE(status.ok()) << field;
        EXPECT_EQ(status.error().field, field);
        EXPECT_TRUE(status.error().message.starts_with(field + ": ")) << status.error().message;
    }
}

TEST(TokenizerKindsTest, MergesMayBePairsOrStringsWithAVersion) {
    auto json = nlohmann::json::parse(json_of("llama-of-transformers-4"));
    const std::string text = "Il treno parte alle sette";
    const auto expected = ids_of(*BpeTokenizer::from_json(json.dump(), {}).value(), text, false);
    nlohmann::json strings = nlohmann::json::array({"#version: 0.2"});
    for (const auto& merge : json["model"]["merges"])
        strings.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    json["model"]["merges"] = strings;
    EXPECT_EQ(ids_of(*BpeTokenizer::from_json(json.dump(), {}).value(), text, false), expected);
    json["model"]["merges"] = nlohmann::json::array({"a  b"});
    EXPECT_FALSE(BpeTokenizer::from_json(json.dump(), {}).ok());
}

TEST(TokenizerKindsTest, TheEndsOfAClassAreThoseThatTransformersGivesIt) {
    const auto ends = [&](const char* name, const char* tokenizer_class) {
        TokenizerConfig config;
        config.tokenizer_class = tokenizer_class;
        const auto tokenizer = BpeTokenizer::from_json(json_of(name), config).value();
        return std::pair(tokenizer->special_text(tokenizer->bos()), tokenizer->special_text(tokenizer->eos()));
    };
    EXPECT_EQ(ends("llama-of-transformers-5", "LlamaTokenizer"), std::pair(std::string("<s>"), std::string("</s>")));
    EXPECT_EQ(ends("gemma-of-transformers-5", "GemmaTokenizer"), std::pair(std::string("<bos>"), std::string("<eos>")));
    EXPECT_EQ(ends("llama-of-transformers-5", "").second, "");
    EXPECT_EQ(ends("smollm2", "LlamaTokenizer").second, "") << "which is loaded as another class";
}

}  // namespace
}  // namespace atl::tokenizer
