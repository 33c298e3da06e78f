#include "trainer/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "shared/base/file.h"
#include "trainer/tokenizer/bpe_tokenizer.h"
#include "trainer/tokenizer/expression.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(ATOLL_FIXTURES) / "tokenizers";

std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

std::unique_ptr<Tokenizer> open_fixture(const std::string& name) {
    auto tokenizer = Tokenizer::open(kFixtures / name);
    check(tokenizer.ok(), tokenizer.ok() ? "" : tokenizer.error().message);
    return std::move(tokenizer).value();
}
std::unique_ptr<Tokenizer> open_small() {
    return open_fixture("small");
}

class TokenizerGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGoldenTest, OddStringsAreEncodedAsByTheReferenceAndComeBack) {
    const std::string name = GetParam();
    const auto tokenizer = open_fixture(name);
    const auto goldens = nlohmann::json::parse(read_file(kFixtures / "goldens.json").value());
    int checked = 0;
    for (const auto& golden : goldens["cases"]) {
        if (!golden.contains(name)) continue;
        ++checked;
        const std::string text = from_hex(golden["hex"]);
        std::vector<std::int32_t> ids;
        check(tokenizer->encode(text, ids).ok(), "cannot encode");
        EXPECT_EQ(ids, golden[name].get<std::vector<std::int32_t>>()) << golden["hex"];
        const bool differs = golden.contains(name + "_decoded_hex");
        const std::string decoded = differs ? from_hex(golden[name + "_decoded_hex"]) : with_utf8_replaced(text);
        EXPECT_EQ(tokenizer->decode(ids), decoded) << golden["hex"];
    }
    EXPECT_GT(checked, 150);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGoldenTest, testing::Values("small", "gpt2", "opt", "llama3", "qwen"),
                         [](const auto& name) { return std::string(name.param); });

TEST(TokenizerTest, AJsonTokenizerPutsItsFirstTokenInFrontAndTheEndTokenBehind) {
    const auto tokenizer = open_fixture("llama3");
    std::vector<std::int32_t> text;
    check(tokenizer->encode("the", text).ok(), "cannot encode");
    std::vector<std::int32_t> document;
    check(tokenizer->encode_document("the", document).ok(), "cannot encode");
    text.insert(text.begin(), tokenizer->bos().value());
    EXPECT_EQ(tokenizer->encode_prompt("the").value(), text);
    text.push_back(tokenizer->eos().value());
    EXPECT_EQ(document, text);
    EXPECT_NE(tokenizer->bos(), tokenizer->eos());
    EXPECT_EQ(tokenizer->decode(document), "the");
    EXPECT_EQ(tokenizer->vocab_size(), 426) << "420 pieces, 3 special tokens, 3 added ones";
    EXPECT_EQ(open_fixture("gpt2")->bos(), open_fixture("gpt2")->eos());
}

TEST(TokenizerTest, TheStepsOfANormalizerFollowEachOther) {
    auto json = nlohmann::json::parse(read_file(kFixtures / "qwen/tokenizer.json").value());
    const auto ids_of = [&](const char* text) {
        std::vector<std::int32_t> ids;
        check(BpeTokenizer::from_json(json.dump(), {}).value()->encode(text, ids).ok(), "cannot encode");
        return ids;
    };
    EXPECT_NE(ids_of("ﬁ è"), ids_of("fi e\u0300"));
    json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}, {{"type", "NFD"}}}}};
    EXPECT_EQ(ids_of("ﬁ è"), ids_of("fi e\u0300"));
}

// Each change makes another tokenizer of it, or none: a message must say so, and name the member.
TEST(TokenizerTest, AJsonTokenizerOfAnotherKindIsRefusedByName) {
    const auto good = nlohmann::json::parse(read_file(kFixtures / "llama3/tokenizer.json").value());
    const TemporaryDirectory directory;
    const auto field_of = [&](const char* patch) {
        const auto changed = good.patch(nlohmann::json::parse(patch));
        check(write_file_atomic(directory.path() / "tokenizer.json", changed.dump()).ok(), "cannot write");
        const auto opened = Tokenizer::open(directory.path());
        return opened.ok() ? std::string("opened") : opened.error().message;
    };
    const auto expect = [&](const std::string& what, const char* patch) {
        EXPECT_NE(field_of(patch).find(what), std::string::npos) << patch << "\n  says: " << field_of(patch);
    };
    EXPECT_EQ(field_of("[]"), "opened");
    expect("\"Lowercase\"", R"([{"op":"replace","path":"/normalizer","value":{"type":"Lowercase"}}])");
    expect("normalizer", R"([{"op":"replace","path":"/normalizer","value":{"type":"Sequence"}}])");
    expect("\"Strip\"",
           R"([{"op":"replace","path":"/normalizer","value":{"type":"Sequence","normalizers":[{"type":"Strip"}]}}])");
    expect("model.type", R"([{"op":"replace","path":"/model/type","value":"Unigram"}])");
    expect("model.dropout", R"([{"op":"replace","path":"/model/dropout","value":0.1}])");
    expect("model.end_of_word_suffix", R"([{"op":"replace","path":"/model/end_of_word_suffix","value":"</w>"}])");
    expect("added_tokens", R"([{"op":"remove","path":"/model/vocab/a"}])");  // which moves them in the library
    expect("model.vocab", R"([{"op":"replace","path":"/model/vocab/a","value":-1}])");
    expect("model.vocab", R"([{"op":"replace","path":"/model/vocab/a","value":4000000000}])");
    expect("model.merges", R"([{"op":"replace","path":"/model/merges/0","value":["a","nowhere"]}])");
    expect("model.merges", R"([{"op":"replace","path":"/model/merges/0","value":["a"]}])");
    expect("model", R"([{"op":"remove","path":"/model"}])");
    expect("the replacement of a Metaspace",
           R"([{"op":"replace","path":"/pre_tokenizer","value":{"type":"Metaspace"}}])");
    expect("the behavior \"Somehow\"",
           R"([{"op":"replace","path":"/pre_tokenizer/pretokenizers/0/behavior","value":"Somehow"}])");
    expect("pre_tokenizer", R"([{"op":"replace","path":"/pre_tokenizer/pretokenizers/0/pattern/Regex","value":"(a"}])");
    expect("pre_tokenizer",
           R"([{"op":"replace","path":"/pre_tokenizer/pretokenizers/0/pattern/Regex","value":"[\\S]"}])");
    expect(
        "\"RobertaProcessing\"",
        R"([{"op":"replace","path":"/post_processor","value":{"type":"RobertaProcessing","sep":["</s>",1],"cls":["<s>",0]}}])");
    expect("post_processor", R"([{"op":"copy","from":"/post_processor/single/0","path":"/post_processor/single/0"}])");
    expect("post_processor", R"([{"op":"copy","from":"/post_processor/single/0","path":"/post_processor/single/-"}])");
    expect("post_processor", R"([{"op":"remove","path":"/post_processor/single/1"}])");
    expect("post_processor", R"([{"op":"remove","path":"/post_processor/special_tokens"}])");
    expect("added_tokens", R"([{"op":"remove","path":"/added_tokens/0/id"}])");
    expect("added_tokens", R"([{"op":"replace","path":"/added_tokens/5/single_word","value":true}])");
    expect("\"<x>\" has the id 999",
           R"([{"op":"add","path":"/added_tokens/-","value":{"id":999,"content":"<x>","special":false}}])");
    expect("\"a\" has the id 999",
           R"([{"op":"add","path":"/added_tokens/-","value":{"id":999,"content":"a","special":false}}])");
    expect("puts other ids before the text",
           R"([{"op":"add","path":"/post_processor/special_tokens/<|begin_of_text|>/ids","value":[7]}])");
    ASSERT_TRUE(write_file_atomic(directory.path() / "tokenizer_config.json", R"({"eos_token":"<|nowhere|>"})").ok());
    expect("eos_token", "[]");
}

// What surrounds the model, in place of what is there: its type and the member are named.
TEST(TokenizerTest, AStepThatIsNotKnownIsRefusedByName) {
    const auto good = nlohmann::json::parse(read_file(kFixtures / "llama3/tokenizer.json").value());
    const auto expect = [&](const char* field, const std::string& what, const char* value) {
        for (const bool in_sequence : {false, true}) {
            auto json = good;
            const auto step = nlohmann::json::parse(value);
            const std::string key = field == std::string("pre_tokenizer") ? "pretokenizers" : std::string(field) + "s";
            json[field] = in_sequence ? nlohmann::json{{"type", "Sequence"}, {key, {step}}} : step;
            const auto opened = BpeTokenizer::from_json(json.dump(), {});
            ASSERT_FALSE(opened.ok()) << field << ": " << value;
            EXPECT_NE(opened.error().message.find(what), std::string::npos) << opened.error().message;
            EXPECT_EQ(opened.error().message.find(field), 0U) << opened.error().message;
        }
    };
    for (const char* type :
         {"Lowercase", "Strip", "StripAccents", "BertNormalizer", "Nmt", "Precompiled", "ByteLevel"}) {
        const std::string step = std::string(R"({"type":")") + type + "\"}";
        expect("normalizer", std::string("\"") + type + "\" is not supported", step.c_str());
    }
    for (const char* type :
         {"Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit", "UnicodeScripts", "FixedLength"}) {
        const std::string step = std::string(R"({"type":")") + type + "\"}";
        expect("pre_tokenizer", std::string("\"") + type + "\" is not supported", step.c_str());
    }
    for (const char* type : {"WordPiece", "BPEDecoder", "CTC"}) {
        const std::string step = std::string(R"({"type":")") + type + "\"}";
        expect("decoder", std::string("\"") + type + "\" is not supported", step.c_str());
    }
    expect("normalizer", "neither a String nor a Regex", R"({"type":"Replace","pattern":" ","content":""})");
    expect("pre_tokenizer", "neither a String nor a Regex", R"({"type":"Split","behavior":"Isolated"})");
    expect("decoder", "Regex", R"({"type":"Replace","pattern":{"Regex":"a"},"content":""})");
    expect("decoder", "start of a Strip", R"({"type":"Strip","content":" ","stop":1})");
    expect("decoder", "with ByteLevel", R"({"type":"Fuse"})");
}

TEST(TokenizerTest, ANormalizerMustLeaveSomethingOfAnAddedToken) {
    auto json = nlohmann::json::parse(read_file(kFixtures / "qwen/tokenizer.json").value());
    json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "l<tool"}}}, {"content", ""}};
    const auto opened = BpeTokenizer::from_json(json.dump(), {});
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.error().message.find("\"l<tool\""), std::string::npos) << opened.error().message;
}

TEST(TokenizerTest, ADocumentStartsWithBosAndEndsWithEosAPromptHasNoEnd) {
    const auto tokenizer = open_small();
    std::vector<std::int32_t> inner;
    check(tokenizer->encode("Il treno", inner).ok(), "cannot encode");
    std::vector<std::int32_t> document = {7};
    check(tokenizer->encode_document("Il treno", document).ok(), "cannot encode");
    std::vector<std::int32_t> expected = {7, 1};
    expected.insert(expected.end(), inner.begin(), inner.end());
    const std::vector<std::int32_t> prompt(expected.begin() + 1, expected.end());
    expected.push_back(2);
    EXPECT_EQ(document, expected) << "appended to what was there";
    EXPECT_EQ(tokenizer->encode_prompt("Il treno").value(), prompt);
    EXPECT_EQ(tokenizer->decode(std::span(document).subspan(1)), "Il treno") << "special tokens are left out";
}

TEST(TokenizerTest, SpecialTokensInATextStayText) {
    std::vector<std::int32_t> ids;
    check(open_small()->encode("</s><s>", ids).ok(), "cannot encode");
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 1) + std::count(ids.begin(), ids.end(), 2), 0);
}

TEST(TokenizerTest, AddBosTokenOfTheConfigIsObeyed) {
    const TemporaryDirectory directory;
    std::filesystem::copy_file(kFixtures / "small/tokenizer.model", directory.path() / "tokenizer.model");
    const auto config = directory.path() / "tokenizer_config.json";
    const auto first_id = [&] { return Tokenizer::open(directory.path()).value()->encode_prompt("a").value().front(); };
    EXPECT_NE(first_id(), 1) << "the default, as in transformers 5";
    ASSERT_TRUE(write_file_atomic(config, R"({"add_bos_token": true})").ok());
    EXPECT_EQ(first_id(), 1);
    ASSERT_TRUE(write_file_atomic(config, R"({"add_bos_token": false})").ok());
    EXPECT_NE(first_id(), 1);
    ASSERT_TRUE(write_file_atomic(config, R"({"add_bos_token": 1})").ok());
    EXPECT_EQ(Tokenizer::open(directory.path()).error().field, config.string());
}

TEST(TokenizerTest, TheFingerprintIsOfTheFileAndOfTheSettingsThatDecideTheIds) {
    const TemporaryDirectory directory;
    std::filesystem::copy_file(kFixtures / "small/tokenizer.model", directory.path() / "tokenizer.model");
    const auto fingerprint = [&](const std::string& config) {
        check(write_file_atomic(directory.path() / "tokenizer_config.json", config).ok(), "cannot write a test's file");
        return Tokenizer::open(directory.path()).value()->sha256();
    };
    const std::string plain = fingerprint("{}");
    EXPECT_EQ(plain.size(), 64U);
    EXPECT_EQ(fingerprint(R"({"add_bos_token": false})"), plain) << "it does so by itself";
    EXPECT_EQ(fingerprint(R"({"eos_token": "</s>", "pad_token": "<unk>", "model_max_length": 5})"), plain);
    EXPECT_NE(fingerprint(R"({"eos_token": "<s>"})"), plain);
    EXPECT_NE(fingerprint(R"({"add_bos_token": true})"), plain);
    EXPECT_EQ(fingerprint(R"({"add_prefix_space": false})"), plain) << "of no class whose it is";
    EXPECT_EQ(fingerprint(R"({"add_prefix_space": true, "tokenizer_class": "LlamaTokenizer"})"), plain);
    EXPECT_NE(fingerprint(R"({"add_prefix_space": false, "tokenizer_class": "LlamaTokenizer"})"), plain);
    EXPECT_NE(plain, open_fixture("gpt2")->sha256());
    EXPECT_EQ(open_small()->vocab_size(), 480);
}

TEST(TokenizerTest, TheFingerprintOfATokenizerJsonIsOfItsEndTokenToo) {
    const TemporaryDirectory directory;
    std::filesystem::copy_file(kFixtures / "gpt2/tokenizer.json", directory.path() / "tokenizer.json");
    const auto config = read_file(kFixtures / "gpt2/tokenizer_config.json").value();
    ASSERT_TRUE(write_file_atomic(directory.path() / "tokenizer_config.json", config).ok());
    EXPECT_EQ(Tokenizer::open(directory.path()).value()->sha256(), open_fixture("gpt2")->sha256());
    std::filesystem::remove(directory.path() / "tokenizer_config.json");
    EXPECT_NE(Tokenizer::open(directory.path()).value()->sha256(), open_fixture("gpt2")->sha256());
}

TEST(TokenizerTest, WhatIsNoTokenizerIsRefusedByName) {
    const TemporaryDirectory directory;
    EXPECT_EQ(Tokenizer::open(directory.path()).error().code, ErrorCode::kNotFound);
    const auto refusal = [&](const char* name) { return Tokenizer::open(directory.path() / name).error(); };
    EXPECT_EQ(refusal("nope").code, ErrorCode::kNotFound);
    EXPECT_EQ(refusal("nope").message.find("there is no '"), 0) << refusal("nope").message;
    ASSERT_TRUE(write_file_atomic(directory.path() / "file", "{}").ok());
    EXPECT_EQ(refusal("file").code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refusal("file").message.find("is a file; give the directory"), std::string::npos);

    const auto json = directory.path() / "tokenizer.json";
    ASSERT_TRUE(write_file_atomic(json, "{}").ok());
    EXPECT_EQ(Tokenizer::open(directory.path()).error().field, json.string());

    const auto model = directory.path() / "tokenizer.model";
    const std::string good = read_file(kFixtures / "small/tokenizer.model").value();
    for (const std::string& bad : {std::string(), std::string("not a model"), good.substr(0, good.size() - 10)}) {
        ASSERT_TRUE(write_file_atomic(model, bad).ok());
        const auto opened = Tokenizer::open(directory.path());
        ASSERT_FALSE(opened.ok()) << bad.size();
        EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
        EXPECT_EQ(opened.error().field, model.string());
    }
}

// A short run of what trainer/tokenizer/tokenizer_json_fuzz.cpp does for longer.
TEST(TokenizerTest, NoMutationOfATokenizerJsonGivesIdsOutsideItsVocabulary) {
    std::mt19937 draw(1);
    int opened = 0;
    for (const char* name : {"gpt2", "llama3"}) {
        const std::string good = read_file(kFixtures / name / "tokenizer.json").value();
        for (int round = 0; round < 300; ++round) {
            std::string text = good;
            for (unsigned edits = draw() % 3 + 1; edits > 0; --edits) {
                const std::size_t at = draw() % text.size();
                const char* pieces[] = {"", "0", "1", "9", "null", "true", "{", "]", "\"", "a", "\\s", "*"};
                text.replace(at, draw() % 3, pieces[draw() % std::size(pieces)]);
            }
            const auto tokenizer = BpeTokenizer::from_json(text, {});
            if (!tokenizer.ok()) continue;
            ++opened;
            std::vector<std::int32_t> ids;
            check((*tokenizer)->encode("<tool>x città it's  12345\n", ids).ok(), "cannot encode");
            for (const std::int32_t id : ids) ASSERT_TRUE(id >= 0 && id < (*tokenizer)->vocab_size()) << text;
        }
    }
    EXPECT_GT(opened, 20) << "some mutations must be harmless";
}

// The words that the tokenizers library 0.23.3 makes of each text: a Split with the expression, isolated.
TEST(PreTokenizerTest, ExpressionsAreReadAsByOniguruma) {
    struct Case {
        const char* expression;
        std::string_view text;
        std::vector<std::string_view> words;
    };
    const std::vector<Case> cases = {
        {"b$", "ab\ncb\n", {"a", "b", "\nc", "b", "\n"}},
        {"^a", "a\nab\na", {"a", "\n", "a", "b\n", "a"}},
        {".+", "a\nb\r\nc", {"a", "\n", "b\r", "\n", "c"}},
        {R"(a\z)", "ba\na", {"ba\n", "a"}},
        {R"([\x{41}-\x{43}])", "ABz", {"A", "B", "z"}},
        {R"([\d\-x\[\]&]+)", "1-x&[]y", {"1-x&[]", "y"}},
        {R"(\p{^L}+|\p{Lu}?+\p{L}{1,2})", "Abcd12", {"Abc", "d", "12"}},
        {R"(\R)", "a\r\nb\u2028", {"a", "\r\n", "b", "\u2028"}},
    };
    for (const auto& [expression, text, expected] : cases) {
        std::vector<std::string_view> words;
        check(Expression::compile("pre_tokenizer", expression).value().split(text, words).ok(), "cannot split");
        EXPECT_EQ(words, expected) << expression;
    }
}

TEST(PreTokenizerTest, WhatPcre2WouldReadDifferentlyIsRefusedByName) {
    const std::pair<const char*, const char*> cases[] = {{"[a&&b]", "&& inside a class"},
                                                         {R"([\s[ab]])", "[ inside a class"},
                                                         {"[[:alpha:]]", "[ inside a class"},
                                                         {R"(\h+)", R"(\h)"},
                                                         {R"(\w+)", R"(\w)"},
                                                         {R"(a\b)", R"(\b)"},
                                                         {R"(\v)", R"(\v)"},
                                                         {R"(\x41)", R"(\x)"},
                                                         {R"((a)\1)", R"(\1)"},
                                                         {"[]a]", "[]"},
                                                         {"[^]a]", "[^]"},
                                                         {"(*FAIL)", "(*"},
                                                         {"a{1,2}+", "}+"},
                                                         {"a{2}?", "}?"},
                                                         {"a{,2}", "{,"},
                                                         {"(?m:.)", "(?m:"},
                                                         {"a(?i)b|c", "(?i)"},
                                                         {"a*", "the empty text"},
                                                         {R"(\p{L)", R"(\p{)"}};
    for (const auto& [expression, name] : cases) {
        const auto compiled = Expression::compile("pre_tokenizer", expression);
        ASSERT_FALSE(compiled.ok()) << expression;
        EXPECT_NE(compiled.error().message.find(name), std::string::npos) << compiled.error().message;
    }
}

TEST(PreTokenizerTest, AnExpressionThatRunsAwayIsAnErrorAndNotTheEnd) {
    const auto split = Expression::compile("pre_tokenizer", "(a+)+$").value();
    std::vector<std::string_view> words;
    const std::string text = std::string(40, 'a') + "b";
    const Status status = split.split(text, words);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().field, "pre_tokenizer");
}

TEST(PreTokenizerTest, TheExpressionsOfRealTokenizersTakeAMillionSpaces) {
    const auto tokenizer = open_fixture("llama3");
    for (const std::string& text : {std::string(1 << 20, ' '), std::string(1 << 20, '\n'), std::string(1 << 20, 'a'),
                                    std::string(1 << 20, '7')}) {
        std::vector<std::int32_t> ids;
        check(tokenizer->encode(text, ids).ok(), "cannot encode");
        EXPECT_EQ(tokenizer->decode(ids), text);
    }
}

}  // namespace
}  // namespace atl::tokenizer
