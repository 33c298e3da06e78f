#include "trainer/data/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/digest/digest.h"

namespace atl::data {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(ATOLL_FIXTURES) / "tokenizers";

std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

std::unique_ptr<Tokenizer> open_small() {
    auto tokenizer = Tokenizer::open(kFixtures / "small");
    check(tokenizer.ok(), tokenizer.ok() ? "" : tokenizer.error().message);
    return std::move(tokenizer).value();
}

TEST(TokenizerTest, OddStringsAreEncodedAndDecodedAsByTheReference) {
    const auto tokenizer = open_small();
    const auto goldens = nlohmann::json::parse(read_file(kFixtures / "small_goldens.json").value());
    ASSERT_GT(goldens["cases"].size(), 150U);
    for (const auto& golden : goldens["cases"]) {
        const std::string hex = golden["hex"];
        std::vector<std::int32_t> ids;
        tokenizer->encode(from_hex(hex), ids);
        EXPECT_EQ(ids, golden["ids"].get<std::vector<std::int32_t>>()) << hex;
        EXPECT_EQ(tokenizer->decode(ids), from_hex(golden["decoded_hex"])) << hex;
    }
}

TEST(TokenizerTest, ADocumentStartsWithBosAndEndsWithEosAPromptHasNoEnd) {
    const auto tokenizer = open_small();
    std::vector<std::int32_t> inner;
    tokenizer->encode("Il treno", inner);
    std::vector<std::int32_t> document = {7};
    tokenizer->encode_document("Il treno", document);
    std::vector<std::int32_t> expected = {7, 1};
    expected.insert(expected.end(), inner.begin(), inner.end());
    const std::vector<std::int32_t> prompt(expected.begin() + 1, expected.end());
    expected.push_back(2);
    EXPECT_EQ(document, expected) << "appended to what was there";
    EXPECT_EQ(tokenizer->encode_prompt("Il treno"), prompt);
    EXPECT_EQ(tokenizer->decode(std::span(document).subspan(1)), "Il treno") << "special tokens are left out";
}

TEST(TokenizerTest, SpecialTokensInATextStayText) {
    std::vector<std::int32_t> ids;
    open_small()->encode("</s><s>", ids);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 1) + std::count(ids.begin(), ids.end(), 2), 0);
}

TEST(TokenizerTest, AddBosTokenOfTheConfigIsObeyed) {
    const TemporaryDirectory directory;
    std::filesystem::copy_file(kFixtures / "small/tokenizer.model", directory.path() / "tokenizer.model");
    const auto config = directory.path() / "tokenizer_config.json";
    const auto first_id = [&] { return Tokenizer::open(directory.path()).value()->encode_prompt("a").front(); };
    EXPECT_EQ(first_id(), 1) << "the default";
    ASSERT_TRUE(write_file_atomic(config, R"({"add_bos_token": false})").ok());
    EXPECT_NE(first_id(), 1);
    ASSERT_TRUE(write_file_atomic(config, R"({"add_bos_token": 1})").ok());
    EXPECT_EQ(Tokenizer::open(directory.path()).error().field, config.string());
}

TEST(TokenizerTest, TheFingerprintIsThatOfTheModelFile) {
    const auto tokenizer = open_small();
    EXPECT_EQ(tokenizer->sha256(), digest::sha256_file(kFixtures / "small/tokenizer.model").value());
    EXPECT_EQ(tokenizer_sha256(kFixtures / "small").value(), tokenizer->sha256());
    EXPECT_EQ(tokenizer->vocab_size(), 480);
}

TEST(TokenizerTest, WhatIsNoTokenizerIsRefusedByName) {
    const TemporaryDirectory directory;
    EXPECT_EQ(Tokenizer::open(directory.path()).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(tokenizer_sha256(directory.path()).error().code, ErrorCode::kNotFound);

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

}  // namespace
}  // namespace atl::data
