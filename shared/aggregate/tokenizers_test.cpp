#include "shared/aggregate/tokenizers.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/json/json.h"

namespace atl::aggregate {
namespace {

using json::Json;

class TokenizersTest : public testing::Test {
  protected:
    void write(const std::string& file, const std::string& text) {
        const auto path = directory_.path() / file;
        std::filesystem::create_directories(path.parent_path());
        check(write_file_atomic(path, text).ok(), "cannot write a test's file");
    }
    static Json tokenizer(const Json& vocabulary, const Json& merges, const Json& added = Json::array()) {
        return {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}, {"added_tokens", added}};
    }
    // A SentencePiece model of these pieces, one letter each.
    static std::string pieces(const std::string& letters) {
        std::string model;
        for (const char letter : letters) model += std::string("\x0a\x03\x0a\x01", 4) + letter;
        return model;
    }
    // Notes, or the refusal.
    std::string compared(const std::vector<std::string>& names) {
        std::vector<std::filesystem::path> paths;
        for (const std::string& name : names) paths.push_back(directory_.path() / name);
        const auto notes = compare_tokenizers(paths);
        if (!notes.ok()) return "refused: " + notes.error().message;
        std::string all;
        for (const std::string& note : *notes) all += note + "\n";
        return all;
    }
    void expect_said(const std::string& said, const std::vector<std::string>& words) {
        for (const std::string& word : words) EXPECT_NE(said.find(word), std::string::npos) << word << ": " << said;
    }

    TemporaryDirectory directory_;
    const Json vocabulary_ = {{"a", 0}, {"b", 1}, {"ab", 2}};
};

TEST_F(TokenizersTest, TheSameFilesOrNoneAreNothingToTell) {
    for (const char* name : {"a", "c"})
        write(std::string(name) + "/tokenizer.json", tokenizer(vocabulary_, {"a b"}).dump());
    std::filesystem::create_directories(directory_.path() / "b");
    EXPECT_EQ(compared({"a", "b", "c"}), "");
    EXPECT_EQ(compared({"b", "a"}), "");
    write("d/tokenizer.model", "a rank");
    write("e/tokenizer.model", "a rank");
    EXPECT_EQ(compared({"d", "e"}), "") << "what the same bytes are is no matter";
}

TEST_F(TokenizersTest, IdsThatDifferAreRefusedByTheToken) {
    write("a/tokenizer.json", tokenizer(vocabulary_, {"a b"}).dump());
    write("swapped/tokenizer.json", tokenizer({{"a", 0}, {"b", 2}, {"ab", 1}}, {"a b"}).dump());
    expect_said(
        compared({"a", "swapped"}),
        {"refused: ", "swapped/tokenizer.json: the token 1 is \"ab\", but \"b\" in ", "with the same tokenizer"});
    write("moved/vocab.json", Json{{"a", 0}, {"b", 1}, {"ab", 7}}.dump());
    write("moved/merges.txt", "#version: 0.2\na b\n");
    expect_said(compared({"a", "moved"}), {"moved/vocab.json: the token 7 is \"ab\", but that is 2 in "});
    write("other/tokenizer.model", pieces("xyz"));
    expect_said(compared({"a", "other"}), {"tokenizer.model: the token 0 is \"x\", but \"a\" in "});
    write("chat/tokenizer.json", tokenizer(vocabulary_, {"a b"}, {{{"id", 3}, {"content", "<|im_end|>"}}}).dump());
    write("pad/tokenizer.json", tokenizer(vocabulary_, {"a b"}).dump());
    write("pad/added_tokens.json", R"({"<pad>": 3})");
    expect_said(compared({"chat", "pad"}), {"the token 3 is \"<pad>\", but \"<|im_end|>\" in "});
    const auto write_config = [&](const char* file, const char* token) {
        write(file, Json{{"added_tokens_decoder", {{"3", {{"content", token}}}}}, {"model_max_length", file}}.dump());
    };
    for (const char* directory : {"one", "two", "three"})
        write(std::string(directory) + "/tokenizer.model", pieces("xyz"));
    write_config("one/tokenizer_config.json", "<|im_end|>");
    write_config("two/tokenizer_config.json", "<pad>");
    write_config("three/tokenizer_config.json", "<|im_end|>");
    expect_said(compared({"one", "two"}), {"the token 3 is \"<pad>\", but \"<|im_end|>\" in "});
    EXPECT_EQ(compared({"one", "three"}), "") << "their settings differ";
}

TEST_F(TokenizersTest, OtherStepsBeforeTheMergesAreNoted) {
    Json json = tokenizer(vocabulary_, {"a b"});
    write("a/tokenizer.json", json.dump());
    json["pre_tokenizer"] = {{"type", "Whitespace"}};
    write("b/tokenizer.json", json.dump());
    expect_said(compared({"a", "b"}), {"its pre_tokenizer differs, too"});
}

TEST_F(TokenizersTest, MergesInAnotherOrderAreRefused) {
    const Json vocabulary = {{"a", 0}, {"b", 1}, {"ab", 2}, {"ba", 3}};
    write("a/tokenizer.json", tokenizer(vocabulary, {"a b", "b a"}).dump());
    write("b/tokenizer.json", tokenizer(vocabulary, {"b a", "a b"}).dump());
    expect_said(compared({"a", "b"}), {"refused: ", "b/tokenizer.json: its merges are not those of ", "cut otherwise"});
}

TEST_F(TokenizersTest, OtherFormsOfTheSameTokenizerAreNoted) {
    write("a/tokenizer.json", tokenizer(vocabulary_, {"a b"}).dump());
    write("lists/tokenizer.json", tokenizer(vocabulary_, Json::array({Json::array({"a", "b"})})).dump(2));
    expect_said(compared({"a", "lists"}), {"lists: its tokenizer files differ from those of ", "(tokenizer.json)",
                                           "but it gives the same tokens the same ids\n"});
    write("two/vocab.json", vocabulary_.dump());
    write("two/merges.txt", "#version: 0.2\na b\n");
    expect_said(compared({"a", "two"}), {"(tokenizer.json, vocab.json, merges.txt)", "the same ids\n"});
    write("more/tokenizer.json", tokenizer(vocabulary_, {"a b"}, {{{"id", 3}, {"content", "<pad>"}}}).dump());
    expect_said(compared({"a", "more"}), {"; 1 more than that one has are lost"});
    expect_said(compared({"more", "a"}), {"; it lacks 1 of them"});
    write("m/tokenizer.model", pieces("abc"));
    write("j/tokenizer.json", tokenizer({{"a", 0}, {"b", 1}, {"c", 2}}, Json::array()).dump());
    expect_said(compared({"m", "j"}), {"the same ids\n"});
}

}  // namespace
}  // namespace atl::aggregate
