#include "trainer/tokenizer/bpe_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "shared/base/file.h"
#include "trainer/tokenizer/byte_level_tokenizer.h"

// That the ids are the reference's, TokenizerGoldenTest and TokenizerSetTest show.
namespace atl::tokenizer {
namespace {

namespace fs = std::filesystem;

const fs::path kOptFixture = fs::path(ATOLL_FIXTURES) / "tokenizers/opt";

class BpeFilesTest : public testing::Test {
  protected:
    BpeFilesTest() { fs::copy(kOptFixture, path()); }

    fs::path path() const { return directory_.path() / "opt"; }
    fs::path file(const char* name) const { return path() / name; }
    void write(const char* name, const std::string& text) { ASSERT_TRUE(write_file_atomic(file(name), text).ok()); }
    // Changes a JSON file by a patch (RFC 6902), as long as `expect_refused` looks at it.
    void expect_refused_with(const char* name, const char* patch, const std::string& what) {
        const std::string before = read_file(file(name)).value();
        write(name, nlohmann::json::parse(before).patch(nlohmann::json::parse(patch)).dump());
        expect_refused(what);
        write(name, before);
    }
    void expect_refused(const std::string& what) {
        const auto opened = Tokenizer::open(path());
        ASSERT_FALSE(opened.ok()) << what;
        EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
        EXPECT_NE(opened.error().message.find(what), std::string::npos) << opened.error().message;
        EXPECT_EQ(opened.error().message.find(path().string()), 0U) << opened.error().message;
    }

    TemporaryDirectory directory_;
};

TEST_F(BpeFilesTest, ATextBeginsAndEndsAsOptHasIt) {
    const auto tokenizer = Tokenizer::open(path()).value();
    EXPECT_EQ(tokenizer->bos(), 2);
    EXPECT_EQ(tokenizer->eos(), 2);
    EXPECT_EQ(tokenizer->vocab_size(), 429) << "426 of vocab.json, 3 added";
    std::vector<std::int32_t> ids = {2};
    check(tokenizer->encode("the città", ids).ok(), "cannot encode");
    EXPECT_EQ(ids.back(), 426) << "an added token is found";
    EXPECT_EQ(tokenizer->encode_prompt("the città").value(), ids);
    ids.insert(ids.begin(), {0, 1, 3});
    EXPECT_EQ(tokenizer->decode(ids), "<s><unk>the città") << "what is named as a special token is left out";
}

TEST_F(BpeFilesTest, TheFingerprintIsOfBothFilesAndOfWhatStandsBesideThem) {
    const auto fingerprint = [&] { return Tokenizer::open(path()).value()->sha256(); };
    const auto changed = [&](const char* name, const std::string& text) {
        const std::string before = read_file(file(name)).value();
        write(name, text);
        std::string result = fingerprint();
        write(name, before);
        return result;
    };
    const auto with = [&](const char* key, const nlohmann::json& value) {
        auto config = nlohmann::json::parse(read_file(file("tokenizer_config.json")).value());
        config[key] = value;
        return config.dump();
    };
    const std::string expected = fingerprint();
    const std::string merges = read_file(file("merges.txt")).value();
    EXPECT_NE(changed("merges.txt", merges.substr(0, merges.rfind('\n', merges.size() - 2) + 1)), expected);
    EXPECT_EQ(changed("tokenizer_config.json", with("model_max_length", 5)), expected);
    EXPECT_NE(changed("tokenizer_config.json", with("add_prefix_space", true)), expected);
    EXPECT_NE(changed("tokenizer_config.json", with("add_bos_token", false)), expected);
    EXPECT_NE(changed("tokenizer_config.json", with("added_tokens_decoder", {{"426", {{"content", "the"}}}})),
              expected);
    EXPECT_NE(changed("added_tokens.json", "{}"), expected);
    EXPECT_EQ(fingerprint(), expected);
}

TEST_F(BpeFilesTest, OneOfTheFilesAloneIsNoTokenizer) {
    fs::remove(file("merges.txt"));
    EXPECT_EQ(Tokenizer::open(path()).error().code, ErrorCode::kNotFound);
}

TEST_F(BpeFilesTest, AFileLargerThanAnyTokenizersIsRefusedUnread) {
    write("tokenizer.json", "{}");
    fs::resize_file(file("tokenizer.json"), 65U << 20);
    const Error refused = Tokenizer::open(path()).error();
    EXPECT_EQ(refused.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.message.find("has 65.0 MiB"), std::string::npos) << refused.message;
}

TEST_F(BpeFilesTest, SpecialTokensMayStandInTheirOwnFile) {
    write("tokenizer_config.json", "{}");
    const auto named = Tokenizer::open(path()).value();
    EXPECT_EQ(named->bos(), 2);
    EXPECT_NE(named->encode_prompt("a").value().front(), 2) << "GPT-2's tokenizer adds none unless told";
    fs::remove(file("special_tokens_map.json"));
    EXPECT_EQ(Tokenizer::open(path()).value()->eos(), std::nullopt);
    auto vocab = nlohmann::json::parse(read_file(file("vocab.json")).value());
    vocab["<|endoftext|>"] = 426;
    write("vocab.json", vocab.dump());
    fs::remove(file("added_tokens.json"));
    EXPECT_EQ(Tokenizer::open(path()).value()->eos(), 426) << "GPT-2's own, where none is named";
}

TEST_F(BpeFilesTest, TokensOfTheConfigurationAreAdded) {
    const auto before = Tokenizer::open(path()).value();
    auto config = nlohmann::json::parse(read_file(file("tokenizer_config.json")).value());
    config["added_tokens_decoder"] = {{"426", {{"content", "the"}}},
                                      {"427", {{"content", "<end>"}, {"special", true}}}};
    write("tokenizer_config.json", config.dump());
    const auto tokenizer = Tokenizer::open(path()).value();
    std::vector<std::int32_t> ids;
    check(tokenizer->encode("the<end>", ids).ok(), "cannot encode");
    std::vector<std::int32_t> text = {426};
    check(before->encode("<end>", text).ok(), "cannot encode");
    EXPECT_EQ(ids, text) << "a special one stays text";
    EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{426, 427}), "the");
    EXPECT_EQ(tokenizer->vocab_size(), 428) << "added_tokens.json is of before added_tokens_decoder";
}

TEST_F(BpeFilesTest, LinesOfMergesMayEndAsOnWindows) {
    const auto plain = Tokenizer::open(path()).value()->encode_prompt("il treno parte").value();
    std::string merges = read_file(file("merges.txt")).value();
    for (std::size_t at = 0; (at = merges.find('\n', at)) != std::string::npos; at += 2) merges.insert(at, "\r");
    write("merges.txt", merges);
    EXPECT_EQ(Tokenizer::open(path()).value()->encode_prompt("il treno parte").value(), plain);
}

TEST_F(BpeFilesTest, WhatIsWrongInAFileIsNamed) {
    expect_refused_with("vocab.json", R"([{"op":"replace","path":"/a","value":-1}])", "vocab.json: ");
    expect_refused_with("vocab.json", R"([{"op":"replace","path":"/a","value":"1"}])", "vocab.json: ");
    expect_refused_with("vocab.json", R"([{"op":"move","from":"/!","path":"/no byte"}])", "byte 33");
    expect_refused_with("vocab.json", R"([{"op":"replace","path":"","value":[]}])", "vocab.json: ");
    expect_refused_with("added_tokens.json", R"([{"op":"add","path":"/a","value":5}])", "\"a\" has the id 5");
    expect_refused_with("added_tokens.json", R"([{"op":"add","path":"/x","value":null}])", "added_tokens.json: ");
    expect_refused_with("special_tokens_map.json", R"([{"op":"replace","path":"","value":[]}])",
                        "special_tokens_map.json: ");
    const std::string merges = read_file(file("merges.txt")).value();
    for (const char* line : {"a", "", "a b c", "a  b"}) {
        write("merges.txt", std::string("#version: 0.2\n") + line + "\n");
        expect_refused("merges.txt: line 2");
    }
    write("merges.txt", merges + "a nowhere\n");
    expect_refused("merges.txt: entry 164");
    write("merges.txt", merges);
    write("vocab.json", read_file(file("vocab.json")).value() + "}");
    expect_refused("vocab.json: ");
}

TEST_F(BpeFilesTest, AConfigurationThatReadsTheFilesInAnotherWayIsRefused) {
    const auto refused = [&](const char* patch, const std::string& what) {
        expect_refused_with("tokenizer_config.json", patch, "tokenizer_config.json: " + what);
    };
    expect_refused_with("tokenizer_config.json",
                        R"([{"op":"replace","path":"/tokenizer_class","value":"RobertaTokenizer"}])",
                        "tokenizer_class: \"RobertaTokenizer\"");
    expect_refused_with("special_tokens_map.json", R"([{"op":"replace","path":"/bos_token","value":"<no>"}])",
                        "bos_token: \"<no>\"");
    refused(R"([{"op":"add","path":"/added_tokens_decoder","value":[]}])", "added_tokens_decoder: ");
    refused(R"([{"op":"add","path":"/added_tokens_decoder","value":{"1x":{"content":"a"}}}])",
            "added_tokens_decoder: ");
    refused(R"([{"op":"add","path":"/added_tokens_decoder","value":{"9":{"content":"a","single_word":true}}}])",
            "added_tokens_decoder: \"a\"");
}

// A short run of what bpe_files_fuzz.cpp does for longer.
TEST(BpeFilesFuzzTest, NoMutationOfTheFilesGivesIdsOutsideTheVocabulary) {
    const std::string good[] = {read_file(kOptFixture / "vocab.json").value(),
                                read_file(kOptFixture / "merges.txt").value()};
    std::mt19937 draw(1);
    int opened = 0;
    for (int round = 0; round < 800; ++round) {
        std::string text[] = {good[0], good[1]};
        for (unsigned edits = draw() % 3 + 1; edits > 0; --edits) {
            std::string& changed = text[draw() % 2];
            const char* pieces[] = {"", "0", "1", "9", "null", " ", "\n", "{", "\"", "a", "\xc4\xa0", "\xff"};
            changed.replace(draw() % changed.size(), draw() % 3, pieces[draw() % std::size(pieces)]);
        }
        const auto parts = parse_bpe_files(text[0], text[1], {});
        if (!parts.ok()) continue;
        const auto tokenizer = ByteLevelTokenizer::create(*parts);
        if (!tokenizer.ok()) continue;
        ++opened;
        std::vector<std::int32_t> ids;
        check((*tokenizer)->encode("il treno x città it's  12345\n", ids).ok(), "cannot encode");
        for (const std::int32_t id : ids) ASSERT_TRUE(id >= 0 && id < (*tokenizer)->vocab_size()) << text[0] << text[1];
    }
    EXPECT_GT(opened, 20) << "some mutations must be harmless";
}

}  // namespace
}  // namespace atl::tokenizer
