#include "shared/model_config/vocabulary.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace atl::model_config {
namespace {

using Tokens = std::vector<std::pair<std::string, std::int64_t>>;
using namespace std::string_literals;

class VocabularyTest : public testing::Test {
  protected:
    void write(const std::string& file, const std::string& text) {
        check(write_file_atomic(directory_.path() / file, text).ok(), "cannot write a test's file");
    }
    Vocabulary read() { return read_vocabulary(directory_.path()).value().value(); }
    std::string fault() {
        const auto found = read_vocabulary(directory_.path());
        return found.ok() ? "none" : found.error().message;
    }
    TemporaryDirectory directory_;
};

TEST_F(VocabularyTest, EachKindOfFileGivesItsTokensAndMerges) {
    EXPECT_FALSE(read_vocabulary(directory_.path())->has_value());
    // Of a piece the text, a score (wire type 5) and a type; then a member that is none of the pieces.
    write("tokenizer.model",
          "\x0a\x0a\x0a\x01"s
          "a\x15\0\0\0\0\x18\x02"
          "\x0a\x05\x0a\x03\xe2\x96\x81"
          "\x12\x02hi"s);
    EXPECT_EQ(read().tokens, (Tokens{{"a", 0}, {"\xe2\x96\x81", 1}}));
    write("vocab.json", R"({"a": 1, "b": 0, "x": "no id"})");
    write("merges.txt", "#version: 0.2\na b\n\n");
    EXPECT_EQ(read().file, "tokenizer.model") << "as the trainer reads them";
    std::filesystem::remove(directory_.path() / "tokenizer.model");
    EXPECT_EQ(read().file, "vocab.json");
    EXPECT_EQ(read().tokens, (Tokens{{"a", 1}, {"b", 0}}));
    EXPECT_EQ(read().merges, std::vector<std::string>{"a b"});
    write("tokenizer.json", R"({"model": {"vocab": [["u", -1.5], ["v", -2]]},
                                "added_tokens": [{"id": 7, "content": "<x>"}]})");
    EXPECT_EQ(read().tokens, (Tokens{{"u", 0}, {"v", 1}, {"<x>", 7}})) << "of Unigram";
    write("tokenizer.json", R"({"model": {"vocab": {"a": 0}, "merges": ["a b", ["c", "d"]]}})");
    EXPECT_EQ(read().merges, (std::vector<std::string>{"a b", "c d"}));
}

TEST_F(VocabularyTest, TokensOfTheConfigurationAreAdded) {
    write("vocab.json", R"({"a": 0})");
    write("added_tokens.json", R"({"<pad>": 5})");
    EXPECT_EQ(read().tokens, (Tokens{{"a", 0}, {"<pad>", 5}}));
    write("tokenizer_config.json", R"({"added_tokens_decoder": {"8": {"content": "<y>"}, "no id": {}}})");
    EXPECT_EQ(read().tokens, (Tokens{{"a", 0}, {"<y>", 8}})) << "the decoder stands in its place";
}

TEST_F(VocabularyTest, FilesThatAreNoneAreNamed) {
    for (const std::string& broken :
         {"\x0a\x05x"s, "\x0b"s, "IQ== 0\nIg== 1\n"s, ""s, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"s}) {
        write("tokenizer.model", broken);
        EXPECT_NE(fault().find("is no SentencePiece model"), std::string::npos) << broken;
    }
    write("tokenizer.json", "[1]");
    EXPECT_EQ(fault(), "must hold a JSON object");
    for (const char* odd :
         {R"({"model": 3, "added_tokens": {"a": 1}})", R"({"model": {"vocab": 3, "merges": {"a": ["b"]}}})",
          R"({"model": {"vocab": [3, []]}, "added_tokens": [3, {"id": "x"}]})"}) {
        write("tokenizer.json", odd);
        EXPECT_EQ(fault(), "none") << "the trainer says what it cannot read: " << odd;
    }
    std::filesystem::resize_file(directory_.path() / "tokenizer.json", 65U << 20);
    EXPECT_NE(fault().find("at most 64.0 MiB"), std::string::npos);
}

}  // namespace
}  // namespace atl::model_config
