// Ranks that stand still before the first step, and in the commands that have none.
#include <filesystem>

#include "shared/base/testing/sanitizers.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

class StandingStillTest : public ProgramTest {
  protected:
    // Runs a command on three ranks, of which number 1 stops right before it reads of a file whose path has that in it.
    static CommandResult run_stopping(const std::string& file, std::vector<std::string> arguments) {
        return run_stopping_at("ATOLL_STOP_READING=" + file, std::move(arguments));
    }
    static CommandResult run_stopping_at(const std::string& where, std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--threads", "1", "--collective-timeout", "2"});
        auto ranks = command(arguments, 3);
        const std::vector<std::string> stopping = {"env", "LD_PRELOAD=" ATOLL_DIE_AT_CALL, where, "ATOLL_DIE_RANK=1"};
        ranks.insert(ranks.begin() + 2, stopping.begin(), stopping.end());
        return run_under({}, ranks);
    }
    std::vector<std::string> training() const {
        return {"train",   "--model", path("model"),         "--data", path("data.safetensors"), "--out", path("out"),
                "--steps", "2",       "--global-batch-size", "3"};
    }
    // That the run ended, and once said of rank 1 that it does not come, and to what.
    static void expect_named(const CommandResult& result, const std::string& awaited) {
        EXPECT_EQ(result.exit_code, 1) << result.err;
        const std::size_t told = result.err.find(" has waited ");
        ASSERT_NE(told, std::string::npos) << result.err;
        EXPECT_EQ(result.err.find(" has waited ", told + 1), std::string::npos) << result.err;
        const std::string line = result.err.substr(told, result.err.find('\n', told) - told);
        EXPECT_NE(line.find(" s for " + awaited + "; rank 1 does not answer"), std::string::npos) << line;
    }
};

TEST_F(StandingStillTest, ARankThatStopsBeforeTheFirstStepEndsTheRunAndIsNamed) {
    if (ATOLL_SANITIZED)
        GTEST_SKIP() << "a sanitizer's own library must come first, not the one that stops the program";
    const std::string numbers = "numbers of every rank (all-reduce)";
    expect_named(run_stopping("data.safetensors", training()), numbers);
    expect_named(run_stopping("model.safetensors", training()), numbers + " after hashing the weights");
}

// Before the watch that asks the others is there: each rank tells for itself, at half of the limit at the latest.
TEST_F(StandingStillTest, ARankThatNeverComesToTheFirstExchangeEndsTheRun) {
    if (ATOLL_SANITIZED)
        GTEST_SKIP() << "a sanitizer's own library must come first, not the one that stops the program";
    const auto result = run_stopping_at("ATOLL_STOP_AT_START=1", training());
    EXPECT_EQ(result.exit_code, 1) << result.err;
    for (const std::string word :
         {"rank 0 of 3 on ", "rank 2 of 3 on ", " has waited 1 s for the first exchange",
          "Interfaces here: ", "OMPI_MCA_btl_tcp_if_include=", "--collective-timeout ends the run"})
        EXPECT_NE(result.err.find(word), std::string::npos) << word << " in " << result.err;
}

TEST_F(StandingStillTest, ProcessesOfTorchrunAreToldHowToStart) {
    const auto result = run_under({"env", "RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2"}, command(training(), 1));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find("mpirun -n 2 atoll-trainer"), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(path("out")));
    const auto ranks = run_under({"env", "RANK=0", "WORLD_SIZE=2"}, command({"report"}, 2));
    EXPECT_EQ(ranks.exit_code, 0) << "these are MPI's as well: " << ranks.err;
}

TEST_F(StandingStillTest, ARankThatStopsWhileItLoadsAModelToEvaluateIsNamed) {
    if (ATOLL_SANITIZED)
        GTEST_SKIP() << "a sanitizer's own library must come first, not the one that stops the program";
    const auto result =
        run_stopping("model.safetensors", {"eval", "--model", path("model"), "--data", path("data.safetensors")});
    expect_named(result, "numbers of every rank (all-reduce) after loading the weights");
}

TEST_F(StandingStillTest, ARankThatStopsWhileItLoadsAModelToGenerateIsNamed) {
    if (ATOLL_SANITIZED)
        GTEST_SKIP() << "a sanitizer's own library must come first, not the one that stops the program";
    auto config = nlohmann::json::parse(read_file(path("config.json")).value());
    config["vocab_size"] = 480;
    ASSERT_TRUE(write_file_atomic(path("config.json"), config.dump()).ok());
    ASSERT_EQ(run({"init", "--config", path("config.json"), "--tokenizer", ATOLL_FIXTURES "/tokenizers/small", "--out",
                   path("speaker")})
                  .exit_code,
              0);
    const auto result = run_stopping("speaker/model.safetensors",
                                     {"generate", "--model", path("speaker"), "--prompt", "a", "--max-tokens", "4"});
    expect_named(result, "numbers of every rank (all-reduce) after loading the weights");
}

}  // namespace
}  // namespace atl::program
