#include <filesystem>

#include "trainer/train/program_fixture.h"

namespace atl::train {
namespace {

// What every command has in common: how flags are read, how it ends, and what it does when a launcher starts it.
class CommandLineTest : public ProgramTest {
  protected:
    CommandLineTest() {
        for (const char* name : {"a", "b", "c"})
            EXPECT_TRUE(write_file_atomic(path(name), R"({"text": "Il treno parte alle sette"})"
                                                      "\n")
                            .ok());
    }
    // `tokenize` with further flags, among them --input.
    CommandResult tokenize(const std::vector<std::string>& flags, int ranks = 1) const {
        std::vector<std::string> arguments = {
            "tokenize", "--tokenizer", ATOLL_FIXTURES "/tokenizers/small", "--seq-len", "16", "--out", path("tokens")};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        return run(arguments, ranks);
    }
    double documents(const std::vector<std::string>& flags) const {
        std::filesystem::remove_all(path("tokens"));
        const auto result = tokenize(flags);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        const auto counts = member(result.out, "documents");
        return counts.empty() ? 0 : counts[0];
    }
};

TEST_F(CommandLineTest, EveryInputFileCounts) {
    EXPECT_EQ(documents({"--input", path("a"), path("b"), path("c")}), 3) << "as a shell's glob gives them";
    EXPECT_EQ(documents({"--input", path("a"), "--input", path("b")}), 2);
    EXPECT_EQ(documents({"--input", path("a") + "," + path("b"), path("c")}), 3);
    std::filesystem::remove_all(path("tokens"));
    const auto missing = tokenize({"--input", path("a"), path("nowhere")});
    EXPECT_EQ(missing.exit_code, 2);
    EXPECT_NE(missing.err.find("nowhere"), std::string::npos) << missing.err;
    const auto trained = run(
        {"tokenizer-train", "--input", path("a"), path("nowhere"), "--vocab-size", "280", "--out", path("tokenizer")});
    EXPECT_EQ(trained.exit_code, 2);
    EXPECT_NE(trained.err.find("nowhere"), std::string::npos) << trained.err;
}

}  // namespace
}  // namespace atl::train
