// A model that PyTorch wrote, imported and used as its users would.

#include <nlohmann/json.hpp>
#include <string_view>

#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(ATOLL_GOLDEN_DIR) / "../../fixtures/torch";

class ImportProgramTest : public ProgramTest {
  protected:
    // eval on rows that every fixture's vocabulary has.
    CommandResult eval(const std::string& model) {
        std::vector<std::int32_t> ids(16);
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 11);
        write_data("few.safetensors", 8, {{"input_ids", ids}});
        return run({"eval", "--model", path(model), "--data", path("few.safetensors")});
    }
};

TEST_F(ImportProgramTest, ImportedModelsCanBeEvaluated) {
    for (const char* name : {"single", "sharded", "llama2", "llama3"}) {
        std::vector<std::string> arguments = {"import", "--from", kFixtures / name, "--out", path(name)};
        const bool is_metas = std::string_view(name).starts_with("llama");
        if (is_metas) arguments.insert(arguments.end(), {"--max-position-embeddings", "64"});
        if (name == std::string_view("llama3")) arguments.insert(arguments.end(), {"--rope-factor", "8"});
        const auto imported = run(arguments);
        ASSERT_EQ(imported.exit_code, 0) << imported.err;
        const auto result = eval(name);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_EQ(member(result.out, "tokens"), std::vector<double>{14}) << name;
    }
}

TEST_F(ImportProgramTest, AModelWithoutATokenizerIsTold) {
    const std::vector<std::string> import = {"import",      "--from", kFixtures / "single",
                                             "--overwrite", "--out",  path("m")};
    const std::vector<std::string> init = {"init",  "--config", path("m/config.json"),
                                           "--out", path("n"),  "--overwrite"};
    for (auto arguments : {import, init}) {
        const auto without = run(arguments);
        ASSERT_EQ(without.exit_code, 0) << without.err;
        EXPECT_NE(without.err.find(path(arguments[0] == "init" ? "n" : "m")), std::string::npos) << without.err;
    }
    auto arguments = import;
    arguments.insert(arguments.end(), {"--tokenizer", ATOLL_FIXTURES "/tokenizers/small"});
    EXPECT_EQ(run(arguments).err, "");
}

TEST_F(ImportProgramTest, WrongInputExitsWithTwoAndWritesNothing) {
    const auto result = run({"import", "--from", kFixtures / "llama2", "--out", path("no")});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("--max-position-embeddings"), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(path("no")));
}

}  // namespace
}  // namespace atl::program
