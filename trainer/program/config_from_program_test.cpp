// Configurations of other programs, translated and trained with.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shared/run_settings/run_settings.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

class ConfigFromProgramTest : public ProgramTest {
  protected:
    const std::filesystem::path files_ = std::filesystem::path(ATOLL_FIXTURES) / "other_configs";
};

TEST_F(ConfigFromProgramTest, WhatIsTranslatedIsReadAsARunJson) {
    std::size_t read = 0;
    for (const auto& entry : std::filesystem::directory_iterator(files_)) {
        const auto made = run({"config-from", entry.path().string()});
        ASSERT_EQ(made.exit_code, 0) << entry.path() << made.err;
        ASSERT_TRUE(write_file_atomic(path("run.json"), made.out).ok());
        run_settings::RunConfig config;
        const Status status = run_settings::assign_file(config, path("run.json"), run_settings::kTrain);
        EXPECT_TRUE(status.ok()) << entry.path() << " " << status.error().message;
        ++read;
    }
    EXPECT_EQ(read, 8U);
}

TEST_F(ConfigFromProgramTest, ATrainingTakesTheTranslationAndNotTheFile) {
    const std::string given = path("ds_config.json");
    ASSERT_TRUE(write_file_atomic(given, R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": "auto",
        "gradient_clipping": 0.5, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "zero_optimization": {"stage": 2, "overlap_comm": true, "elastic_checkpoint": false}})")
                    .ok());
    const auto refused = train("out", {"--config", given, "--steps", "1"});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("config-from " + given), std::string::npos) << refused.err;
    const auto made = run({"config-from", given});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(nlohmann::json::parse(made.out),
              nlohmann::json::parse(R"({"global_batch_size": 4, "max_grad_norm": 0.5, "optimizer": "adamw", "lr": 0.01,
                                        "weight_decay": 0, "sharding": "shard_grad_op"})"));
    EXPECT_NE(made.err.find("atoll-trainer config-from: train_micro_batch_size_per_gpu: is \"auto\""),
              std::string::npos)
        << made.err;
    EXPECT_NE(made.err.find("zero_optimization.overlap_comm: has no counterpart"), std::string::npos) << made.err;
    EXPECT_NE(made.err.find("left out, at their defaults: zero_optimization.elastic_checkpoint"), std::string::npos)
        << made.err;
    ASSERT_TRUE(write_file_atomic(path("run.json"), made.out).ok());
    for (const int ranks : {1, 2}) {
        const auto trained = train("out", {"--config", path("run.json"), "--steps", "2"}, ranks);
        EXPECT_EQ(trained.exit_code, 0) << trained.err;
        EXPECT_EQ(member(trained.out, "loss").size(), 2U) << trained.out;
    }
}

TEST_F(ConfigFromProgramTest, WhatIsNoConfigurationIsNamed) {
    ASSERT_TRUE(write_file_atomic(path("run.json"), R"({"lr": 1})").ok());
    for (const auto& [arguments, what] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"config-from"}, "FILE"},
             {{"config-from", path("run.json")}, path("run.json")},
             {{"config-from", path("nowhere")}, path("nowhere")}}) {
        const auto result = run(arguments);
        EXPECT_NE(result.exit_code, 0);
        EXPECT_NE(result.err.find(what), std::string::npos) << result.err;
        EXPECT_EQ(result.out, "");
    }
    ASSERT_TRUE(write_file_atomic(path("ds.json"), R"({"train_batch_size": 4, "train_batch_size": 8})").ok());
    const auto repeated = run({"config-from", path("ds.json")});
    EXPECT_EQ(repeated.exit_code, 2);
    EXPECT_NE(repeated.err.find(path("ds.json") + ": not valid JSON: repeated key \"train_batch_size\""),
              std::string::npos)
        << repeated.err;
    EXPECT_EQ(run({"config-from", "--help"}).exit_code, 0);
}

}  // namespace
}  // namespace atl::program
