#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

const fs::path kFixtures = fs::path(ATOLL_FIXTURES) / "torch";

// The program itself. There is no store at its gateway: what is right until then fails there.
class ImportCommandTest : public testing::Test {
  protected:
    CommandResult import(const fs::path& from, const std::vector<std::string>& flags = {}) {
        std::vector<std::string> command = {ATOLL_PROGRAM, "model", "import", "m", from.string()};
        command.insert(command.end(), flags.begin(), flags.end());
        CommandOptions options;
        options.environment = {{"ATOLL_GATEWAY", "http://127.0.0.1:1"}, {"ATOLL_TOKEN", "none"}};
        return run_command(command, options).value();
    }
    TemporaryDirectory temporary_;
};

TEST_F(ImportCommandTest, FilesOfOtherProgramsAreConvertedFirst) {
    const fs::path out = temporary_.path() / "out";
    const auto result = import(kFixtures / "llama2",
                               {"--converted", out.string(), "--max-position-embeddings", "64", "--dtype", "fp16"});
    EXPECT_EQ(result.exit_code, 1) << result.err;  // the store
    EXPECT_NE(result.err.find("127.0.0.1:1"), std::string::npos) << result.err;
    EXPECT_TRUE(fs::exists(out / "model.safetensors")) << result.err;
    EXPECT_NE(read_file(out / "config.json").value().find("float16"), std::string::npos);
}

TEST_F(ImportCommandTest, WhatCannotBeConvertedIsSaidInTheTrainersWords) {
    const auto result = import(kFixtures / "llama2");
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("--max-position-embeddings: is required"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace atl::cli
