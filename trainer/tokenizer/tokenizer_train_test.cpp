#include "trainer/tokenizer/tokenizer_train.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/base/staged_directory.h"
#include "trainer/tokenizer/tokenizer.h"

namespace atl::tokenizer {
namespace {

class TokenizerTrainTest : public testing::Test {
  protected:
    TokenizerTrainTest() {
        std::string jsonl;
        std::string plain;
        for (int i = 0; i < 400; ++i) {
            const std::string text =
                "la casa numero " + std::to_string(i) + " è vicina al lago\nřeka teče " + std::string(i % 7, 'x');
            jsonl += nlohmann::json{{"text", text}}.dump() + "\n";
            plain += text + "\n";
        }
        check(write_file_atomic(directory_.path() / "in.jsonl", jsonl).ok(), "cannot write a test's file");
        check(write_file_atomic(directory_.path() / "in.txt", plain).ok(), "cannot write a test's file");
        options_.inputs = {directory_.path() / "in.jsonl"};
        options_.out = directory_.path() / "out";
        options_.vocab_size = 320;
    }
    // Trains where no file grows beyond a KiB, as on a full disk: there is room for all files but tokenizer.model.
    Status train_without_room() const {
        std::signal(SIGXFSZ, SIG_IGN);
        rlimit old_limit{};
        check(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0, "cannot read the limit of files");
        const rlimit limit{1024, old_limit.rlim_max};
        check(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "cannot limit files");
        Status status = train_tokenizer(options_);
        ::setrlimit(RLIMIT_FSIZE, &old_limit);
        return status;
    }

    TemporaryDirectory directory_;
    TokenizerTrainOptions options_;
};

TEST_F(TokenizerTrainTest, WhoComesSecondIsRefusedBeforeAnythingIsRead) {
    options_.inputs = {directory_.path() / "not there"};
    {
        const auto first = StagedDirectory::create(options_.out).value();
        EXPECT_EQ(train_tokenizer(options_).error().code, ErrorCode::kConflict);
        EXPECT_TRUE(std::filesystem::exists(first.path()));
    }
    EXPECT_FALSE(train_tokenizer(options_).ok());
    EXPECT_FALSE(std::filesystem::exists(options_.out)) << "a refusal leaves nothing";
}

TEST_F(TokenizerTrainTest, TheTokenizerHasTheAskedSizeAndRestoresAnyText) {
    const Status status = train_tokenizer(options_);
    ASSERT_TRUE(status.ok()) << status.error().message;
    const auto tokenizer = Tokenizer::open(options_.out);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ((*tokenizer)->vocab_size(), 320);
    EXPECT_EQ((*tokenizer)->bos(), 1);
    EXPECT_EQ((*tokenizer)->eos(), 2);
    std::vector<std::int32_t> ids;
    const std::string text = "la casa  è 中文 😀\n\tvicina ";
    check((*tokenizer)->encode_document(text, ids).ok(), "cannot encode");
    EXPECT_EQ((*tokenizer)->decode(ids), text) << "bytes stand in for what the vocabulary lacks";
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 0) << "nothing is unknown";
}

TEST_F(TokenizerTrainTest, TheSameTextGivesTheSameBytesFromJsonlAndFromPlainText) {
    ASSERT_TRUE(train_tokenizer(options_).ok());
    const std::string first = read_file(options_.out / "tokenizer.model").value();
    options_.out = directory_.path() / "again";
    options_.inputs = {directory_.path() / "in.txt"};
    ASSERT_TRUE(train_tokenizer(options_).ok());
    EXPECT_EQ(read_file(options_.out / "tokenizer.model").value(), first);
}

TEST_F(TokenizerTrainTest, AFullDiskLeavesNothingOrTheOldTokenizer) {
    const Status first = train_without_room();
    ASSERT_FALSE(first.ok());
    EXPECT_NE(first.error().message.find("tokenizer.model"), std::string::npos) << first.error().message;
    EXPECT_FALSE(std::filesystem::exists(options_.out));
    ASSERT_TRUE(train_tokenizer(options_).ok());
    const std::string old = read_file(options_.out / "tokenizer.model").value();
    options_.vocab_size = 321;
    EXPECT_FALSE(train_without_room().ok());
    EXPECT_EQ(read_file(options_.out / "tokenizer.model").value(), old);
    ASSERT_TRUE(train_tokenizer(options_).ok());
    EXPECT_EQ(Tokenizer::open(options_.out).value()->vocab_size(), 321);
}

TEST_F(TokenizerTrainTest, WhatCannotBeTrainedIsRefusedByName) {
    const auto field = [&] { return train_tokenizer(options_).error().field; };
    options_.vocab_size = 259;
    EXPECT_EQ(field(), "vocab-size");
    options_.vocab_size = 99'999'999'999;
    EXPECT_EQ(describe(train_tokenizer(options_).error()), "vocab-size: must be between 260 and 1000000");
    options_.vocab_size = 100000;
    EXPECT_EQ(field(), "vocab-size") << "the text has not so many pieces";
    options_.vocab_size = 262;
    EXPECT_EQ(field(), "vocab-size") << "the text's characters alone need more";
    const auto message = [&] { return train_tokenizer(options_).error().message; };
    EXPECT_NE(message().find("--vocab-size 262"), std::string::npos) << message();
    EXPECT_EQ(message().find("trainer_interface"), std::string::npos) << "not the library's own words: " << message();
    options_.vocab_size = 100000;
    EXPECT_NE(message().find("--vocab-size 100000"), std::string::npos) << message();
    options_.vocab_size = 320;
    ASSERT_TRUE(write_file_atomic(directory_.path() / "bad.jsonl", "{\"text\":\"a\"}\n{\n").ok());
    options_.inputs = {directory_.path() / "bad.jsonl"};
    EXPECT_EQ(field(), (directory_.path() / "bad.jsonl").string() + ":2");
    ASSERT_TRUE(write_file_atomic(directory_.path() / "empty.txt", "\n\n").ok());
    options_.inputs = {directory_.path() / "empty.txt"};
    EXPECT_EQ(field(), "input");
    EXPECT_FALSE(std::filesystem::exists(options_.out));
}

}  // namespace
}  // namespace atl::tokenizer
