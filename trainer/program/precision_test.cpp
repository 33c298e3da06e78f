#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "shared/base/testing/sanitizers.h"
#include "trainer/kernels/testing/worse.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

class PrecisionTest : public ProgramTest {
  protected:
    // Stops after the first step, goes on to the second, then to the end, and compares with a run that did not stop.
    void expect_resumes_bit_for_bit(std::vector<std::string> flags, int ranks) const {
        flags.insert(flags.end(), {"--steps", "5", "--global-batch-size", "4", "--save-dtype", "fp32"});
        const auto whole = train("whole", flags, ranks);
        std::filesystem::remove_all(path("out"));
        auto stopping = flags;
        stopping.insert(stopping.end(), {"--resume", "--time-limit", kAtOnce});
        for (const int steps : {1, 2}) {
            EXPECT_EQ(lines_of(train("out", stopping, ranks).out).back()["steps"], steps);
        }
        flags.emplace_back("--resume");
        const auto rest = train("out", flags, ranks);
        ASSERT_EQ(member(rest.out, "loss").size(), 3U) << rest.err;
        EXPECT_EQ(member(rest.out, "loss").back(), member(whole.out, "loss").back());
        EXPECT_EQ(weights("out") == weights("whole"), true);
        const auto last = lines_of(rest.out).back(), all = lines_of(whole.out).back();
        for (const char* key : {"loss", "loss_scale", "skipped_steps"}) {
            EXPECT_EQ(last.value(key, -1.0), all.value(key, -1.0)) << key;
        }
    }
};

TEST_F(PrecisionTest, TwentyStepsInHalvesStayWithinHalfAPercentOfTransformersInFp32) {
    const nlohmann::json golden = golden_steps();
    const std::vector<std::vector<std::string>> runs = {
        {"--precision", "bf16"},
        {"--precision", "fp16"},
        {"--precision", "bf16", "--moments-dtype", "bf16"},
        {"--compute-dtype", "bf16"},
        {"--compute-dtype", "bf16", "--residual-dtype", "fp32"},
        {"--precision", "fp16", "--compute-dtype", "fp16"},
        {"--precision", "bf16", "--compute-dtype", "bf16", "--masters", "none", "--moments-dtype", "bf16"}};
    for (const auto& flags : runs) {
        const auto result = train_golden(flags);
        const auto losses = member(result.out, "loss");
        ASSERT_EQ(losses.size(), 20U) << result.err;
        double furthest = 0;
        for (std::size_t i = 0; i < 20; ++i) {
            furthest = kernels::worse(furthest, std::abs(losses[i] / golden["loss"][i].get<double>() - 1));
        }
        EXPECT_LT(furthest, 5e-3) << flags[1];
        EXPECT_GT(furthest, 1e-6) << flags[1] << ": these are the losses of fp32";
    }
}

TEST_F(PrecisionTest, AllShardingsWriteTheSameModel) {
    using FlagList = std::vector<std::string>;
    for (const auto& [precision, more] :
         {std::pair<std::string, FlagList>("bf16", {}), std::pair<std::string, FlagList>("fp16", {}),
          std::pair<std::string, FlagList>("bf16", {"--compute-dtype", "bf16", "--masters", "none"})}) {
        const auto trained = [&](const std::string& steps, const std::string& sharding) {
            FlagList flags = {"--steps",         steps,  "--global-batch-size", "4",    "--precision", precision,
                              "--moments-dtype", "bf16", "--save-dtype",        "fp32", "--sharding",  sharding};
            flags.insert(flags.end(), more.begin(), more.end());
            const auto result = train(sharding, flags, 2);
            EXPECT_EQ(result.exit_code, 0) << precision << " " << sharding << ": " << result.err;
            return weights(sharding);
        };
        const std::string untrained = trained("0", "none"), whole = trained("3", "none");
        EXPECT_FALSE(whole == untrained) << precision << ": no step changed a weight";
        for (const char* sharding : {"shard_optimizer", "shard_grad_op", "full_shard"}) {
            const std::string sharded = trained("3", sharding);
            ASSERT_EQ(sharded.size(), whole.size()) << precision << " " << sharding;
            const auto first = std::ranges::mismatch(sharded, whole).in1 - sharded.begin();
            EXPECT_EQ(first, std::ssize(whole)) << precision << " " << sharding << ": the first byte that differs";
        }
    }
}

TEST_F(PrecisionTest, AStoppedRunGoesOnBitForBit) {
    expect_resumes_bit_for_bit({"--precision", "bf16", "--moments-dtype", "bf16"}, 1);
    expect_resumes_bit_for_bit({"--precision", "bf16", "--sharding", "shard_optimizer"}, 2);
    expect_resumes_bit_for_bit({"--precision", "bf16", "--compute-dtype", "bf16", "--masters", "none"}, 1);
    // The scale is too large for the first three steps and must not begin anew.
    expect_resumes_bit_for_bit({"--precision", "fp16", "--loss-scale", "2.2e20"}, 1);
    EXPECT_EQ(lines_of(train("whole", {"--precision", "fp16", "--loss-scale", "2.2e20", "--steps", "5",
                                       "--global-batch-size", "4"})
                           .out)
                  .back()["skipped_steps"],
              3);
}

// Adapters in fp32 on a base in NF4, multiplied in bf16.
TEST_F(PrecisionTest, Bf16ComputeTakesAdaptersAndQuantisedBases) {
    const auto losses = [&](const std::string& compute, int ranks) {
        const auto result = train("lora",
                                  {"--steps", "3", "--global-batch-size", "4", "--lora-rank", "4", "--lora-dropout",
                                   "0.1", "--quantize", "nf4", "--compute-dtype", compute},
                                  ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return member(result.out, "loss");
    };
    const auto wide = losses("fp32", 1), one = losses("bf16", 1), two = losses("bf16", 2);
    ASSERT_TRUE(wide.size() >= 3 && one.size() == wide.size() && two.size() == wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
        EXPECT_NEAR(one[i] / wide[i], 1, 5e-3);
        EXPECT_NEAR(two[i] / one[i], 1, 1e-3);
    }
    EXPECT_NE(one, wide);
    const auto read = run({"eval", "--model", path("model"), "--adapter", path("lora"), "--data",
                           path("data.safetensors"), "--quantize", "nf4", "--compute-dtype", "bf16"});
    EXPECT_EQ(read.exit_code, 0) << read.err;
}

TEST_F(PrecisionTest, ThePlanIsWhatARunTakes) {
    ATOLL_SKIP_IF_SANITIZED();
    expect_plan_holds({"--precision", "bf16"});
    expect_plan_holds({"--precision", "bf16", "--moments-dtype", "bf16"});
    expect_plan_holds({"--precision", "bf16", "--compute-dtype", "bf16", "--masters", "none"});
}

TEST_F(PrecisionTest, AnOverflowSkipsTheStepAndHalvesTheScale) {
    const std::vector<std::string> flags = {"--steps", "4", "--global-batch-size", "4", "--save-dtype", "fp32"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.end(), flags.begin(), flags.end());
        return more;
    };
    // Scales are powers of two: without an overflow they change no bit.
    const auto usual = train("usual", with({"--precision", "fp16"}));
    const auto large = train("large", with({"--precision", "fp16", "--loss-scale", "1048576"}));
    EXPECT_EQ(member(large.out, "grad_norm"), member(usual.out, "grad_norm"));
    EXPECT_EQ(lines_of(usual.out).back()["skipped_steps"], 0);
    EXPECT_EQ(weights("large") == weights("usual"), true);

    // The squares of gradients so large are infinite.
    const auto result = train("skipping", with({"--precision", "fp16", "--loss-scale", "4.15e34"}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 5U);
    for (std::size_t step = 0; step < 4; ++step) {
        EXPECT_TRUE(lines[step]["grad_norm"].is_null());
        EXPECT_EQ(lines[step]["loss_scale"].get<double>(), std::ldexp(4.15e34, -static_cast<int>(step)));
    }
    EXPECT_EQ(lines[4]["skipped_steps"], 4);
    EXPECT_EQ(lines[4]["loss_scale"].get<double>(), std::ldexp(4.15e34, -4));
    ASSERT_EQ(train("still", {"--steps", "0", "--save-dtype", "fp32"}).exit_code, 0);
    EXPECT_EQ(weights("skipping") == weights("still"), true) << "no step changed a weight";
}

TEST_F(PrecisionTest, OtherPrecisionsDoNotGoOn) {
    ASSERT_EQ(train("out", {"--steps", "5", "--time-limit", kAtOnce, "--precision", "bf16"}).exit_code, 0);
    const auto other = train("out", {"--steps", "5", "--resume", "--precision", "fp16"});
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_NE(other.err.find("--precision \"bf16\" (now"), std::string::npos) << other.err;
}

TEST_F(PrecisionTest, EvaluationInBf16IsThatOfTheModelRoundedToIt) {
    ASSERT_EQ(train("rounded", {"--steps", "0", "--save-dtype", "bf16"}).exit_code, 0);
    const auto loss = [&](const std::string& model, const std::string& precision) {
        return member(
            run({"eval", "--model", path(model), "--data", path("data.safetensors"), "--precision", precision}).out,
            "loss");
    };
    EXPECT_EQ(loss("model", "bf16"), loss("rounded", "fp32"));
    EXPECT_NE(loss("model", "bf16"), loss("model", "fp32"));
}

}  // namespace
}  // namespace atl::program
