// Mistral, Qwen2 and Qwen3 (with YaRN) as users train, adapt and run them: what Llama has been tested for in depth.
#include <nlohmann/json.hpp>

#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

class FamilyProgramTest : public ProgramTest {
  protected:
    // A model of the golden run's configuration with changes and a vocabulary of bytes and more, in the place of the
    // fixture's.
    void take(const std::string& family, const nlohmann::json& changes = nlohmann::json::object()) const {
        const auto text = read_file(std::filesystem::path(ATOLL_GOLDEN_DIR) / "training" / family / "config.json");
        auto config = nlohmann::json::parse(text.ok() ? *text : "{}");
        config.update({{"vocab_size", 480}, {"initializer_range", 0.3}});
        config.update(changes);
        ASSERT_TRUE(write_file_atomic(path("family.json"), config.dump()).ok());
        const auto made = run({"init", "--config", path("family.json"), "--tokenizer",
                               ATOLL_FIXTURES "/tokenizers/small", "--out", path("model"), "--overwrite"});
        ASSERT_EQ(made.exit_code, 0) << made.err;
    }
    std::string text(std::vector<std::string> flags, int ranks = 1) const {
        flags.insert(flags.begin(), {"generate", "--prompt", "ab c", "--max-tokens", "8", "--threads", "1"});
        const auto result = run(flags, ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return result.out;
    }
    double loss_of(const std::string& model, const std::vector<std::string>& flags = {}) const {
        std::vector<std::string> arguments = {"eval", "--model", path(model), "--data", path("data.safetensors")};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        const auto result = run(arguments);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        const auto losses = member(result.out, "loss");
        return losses.empty() ? -1 : losses.front();
    }
};

TEST_F(FamilyProgramTest, AStoppedRunGoesOnBitForBitAndItsModelIsReadAgain) {
    ASSERT_NO_FATAL_FAILURE(take("qwen3"));
    const std::vector<std::string> flags = {"--steps", "4", "--global-batch-size", "4", "--save-dtype", "fp32"};
    const auto with = [&](const std::vector<std::string>& more) {
        auto all = flags;
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    const auto whole = train("whole", with({"--deterministic"}));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    ASSERT_EQ(train("out", with({"--deterministic", "--time-limit", kAtOnce})).exit_code, 0);
    const auto resumed = train("out", with({"--deterministic", "--resume", "--sharding", "full_shard"}), 2);
    EXPECT_EQ(member(resumed.out, "loss").size(), 3U) << resumed.err;
    EXPECT_EQ(weights("out") == weights("whole"), true);
    EXPECT_LT(loss_of("out"), loss_of("model"));
}

TEST_F(FamilyProgramTest, AStateOfAnotherYarnDoesNotGoOn) {
    ASSERT_NO_FATAL_FAILURE(take("qwen3"));
    ASSERT_EQ(train("out", {"--steps", "5", "--time-limit", kAtOnce}).exit_code, 0);
    auto config = nlohmann::json::parse(read_file(path("model/config.json")).value());
    config["rope_scaling"]["beta_fast"] = 16.0;
    ASSERT_TRUE(write_file_atomic(path("model/config.json"), config.dump()).ok());
    const auto other = train("out", {"--steps", "5", "--resume"});
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_NE(other.err.find("model.yarn"), std::string::npos) << other.err;
}

TEST_F(FamilyProgramTest, AdaptersTrainAndMergeAndEveryShardingGeneratesTheirText) {
    for (const char* const family : {"mistral", "qwen2", "qwen3"}) {
        SCOPED_TRACE(family);
        ASSERT_NO_FATAL_FAILURE(take(family));
        const auto trained = train("adapter", {"--steps", "8", "--global-batch-size", "4", "--lr", "5e-2",
                                               "--lora-rank", "2", "--lora-targets", "all-linear"});
        ASSERT_EQ(trained.exit_code, 0) << trained.err;
        const std::vector<std::string> adapted = {"--adapter", path("adapter")};
        EXPECT_LT(loss_of("model", adapted), loss_of("model"));
        const auto merged = run(
            {"merge", "--model", path("model"), "--adapter", path("adapter"), "--out", path("merged"), "--overwrite"});
        ASSERT_EQ(merged.exit_code, 0) << merged.err;
        EXPECT_NEAR(loss_of("merged") / loss_of("model", adapted), 1, 1e-5);
        const std::string whole = text({"--model", path("model"), "--adapter", path("adapter")});
        EXPECT_EQ(text({"--model", path("model"), "--adapter", path("adapter"), "--sharding", "full_shard"}, 2), whole);
        EXPECT_EQ(text({"--model", path("merged")}), whole);
        EXPECT_NE(text({"--model", path("model")}), whole);
    }
}

TEST_F(FamilyProgramTest, QuantizedMatricesLeaveNormsOfHeadsAsTheyAre) {
    ASSERT_NO_FATAL_FAILURE(take("qwen3"));
    const double exact = loss_of("model");
    EXPECT_NEAR(loss_of("model", {"--quantize", "int8"}) / exact, 1, 0.05);
    EXPECT_NE(loss_of("model", {"--quantize", "int8"}), exact);
}

TEST_F(FamilyProgramTest, RowsBeyondAMistralsWindowAreRefusedByName) {
    ASSERT_NO_FATAL_FAILURE(take("mistral", {{"sliding_window", 15}}));
    for (const auto& refused :
         {train("out", {"--steps", "1"}), run({"eval", "--model", path("model"), "--data", path("data.safetensors")}),
          run({"generate", "--model", path("model"), "--prompt", "ab c", "--max-tokens", "40"})}) {
        EXPECT_EQ(refused.exit_code, 2);
        EXPECT_NE(refused.err.find("sliding_window"), std::string::npos) << refused.err;
    }
    ASSERT_NO_FATAL_FAILURE(take("mistral", {{"sliding_window", 16}}));
    const double narrow = loss_of("model");
    ASSERT_NO_FATAL_FAILURE(take("mistral"));
    EXPECT_EQ(loss_of("model"), narrow) << "rows of 16 tokens see all of themselves";
}

}  // namespace
}  // namespace atl::program
