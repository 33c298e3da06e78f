// Adapters on a base that is kept as int8 or NF4, as users train, evaluate and merge them. The numbers are those of
// bitsandbytes and peft: tests/numerics/make_qlora_goldens.py made them.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "shared/base/testing/sanitizers.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

class QuantizedProgramTest : public ProgramTest {
  protected:
    QuantizedProgramTest() {
        golden_ = "qlora";
        const auto text = read_file(path("config.json"));
        auto config = nlohmann::json::parse(*text);
        // Rows that no block of 64 divides, in a dtype that keeps what merge writes.
        config.update({{"hidden_size", 40}, {"intermediate_size", 56}, {"torch_dtype", "float32"}});
        EXPECT_TRUE(write_file_atomic(path("odd.json"), config.dump()).ok());
        EXPECT_EQ(run({"init", "--config", path("odd.json"), "--out", path("odd"), "--seed", "1"}).exit_code, 0);
    }

    // The 20 steps of the golden numbers.
    CommandResult train_golden_adapter(const std::vector<std::string>& flags, int ranks = 1) const {
        make_golden_base();
        std::vector<std::string> arguments = {"train", "--model", path("golden"), "--data", path("golden.safetensors")};
        arguments.insert(arguments.end(),
                         {"--adapter", ATOLL_GOLDEN_DIR "/qlora/adapter", "--out", path("out"), "--overwrite"});
        arguments.insert(arguments.end(), {"--steps", "20", "--global-batch-size", "4", "--shuffle", "off"});
        arguments.insert(arguments.end(), {"--lr", "5e-3", "--beta2", "0.98", "--weight-decay", "0.1"});
        arguments.insert(arguments.end(), {"--threads", "1"});
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        return run(arguments, ranks);
    }
    // Trains adapters on all linears of `model`.
    CommandResult train_on(const std::string& model, const std::string& out, const std::vector<std::string>& flags,
                           int ranks = 1) const {
        std::vector<std::string> arguments = {"train", "--model", path(model), "--data", path("data.safetensors")};
        arguments.insert(arguments.end(), {"--out", path(out), "--threads", "1", "--save-dtype", "fp32"});
        if (std::ranges::find(flags, "--resume") == flags.end()) arguments.emplace_back("--overwrite");
        arguments.insert(arguments.end(), {"--lora-rank", "4", "--lora-targets", "all-linear"});
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        return run(arguments, ranks);
    }
    std::string adapter(const std::string& out) const {
        const auto bytes = read_file(path(out) + "/adapter_model.safetensors");
        EXPECT_TRUE(bytes.ok()) << out;
        return bytes.ok() ? *bytes : std::string();
    }
    double eval(std::vector<std::string> flags, int ranks = 1) const {
        flags.insert(flags.begin(), {"eval", "--data", path("data.safetensors"), "--threads", "1"});
        const auto result = run(flags, ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return member(result.out, "loss").at(0);
    }
};

TEST_F(QuantizedProgramTest, TheFirstTwentyStepsAreThoseOfPeftOnTheBaseOfBitsandbytes) {
    for (const char* format : {"nf4", "int8"}) {
        const auto text = read_file(std::string(ATOLL_GOLDEN_DIR "/qlora/steps_") + format + ".json");
        ASSERT_TRUE(text.ok());
        const auto golden = nlohmann::json::parse(*text);
        for (const int ranks : {1, 2}) {
            const auto result = train_golden_adapter({"--quantize", format, "--sharding", "full_shard"}, ranks);
            const auto losses = member(result.out, "loss"), norms = member(result.out, "grad_norm");
            ASSERT_EQ(losses.size(), 20U) << result.err;
            for (std::size_t i = 0; i < 20; ++i) {
                EXPECT_NEAR(losses[i] / golden["loss"][i].get<double>(), 1, 1e-5) << format << " step " << i + 1;
                EXPECT_NEAR(norms[i] / golden["grad_norm"][i].get<double>(), 1, 1e-4) << format << " step " << i + 1;
            }
        }
        // A control: the tolerance can tell a quantised base from the model itself.
        const double own = member(train_golden_adapter({}).out, "loss").at(0);
        EXPECT_GT(std::abs(own / golden["loss"][0].get<double>() - 1), 5e-5) << format;
    }
}

TEST_F(QuantizedProgramTest, ARunIsThatOnTheDequantisedWeights) {
    auto opt = nlohmann::json::parse(read_file(ATOLL_GOLDEN_DIR "/training/opt/config.json").value());
    opt.update({{"vocab_size", 90}, {"hidden_size", 40}});  // no row is a multiple of 64
    ASSERT_TRUE(write_file_atomic(path("opt.json"), opt.dump()).ok());
    ASSERT_EQ(run({"init", "--config", path("opt.json"), "--out", path("opt"), "--seed", "1"}).exit_code, 0);
    for (const auto& [model, format] : {std::pair("odd", "nf4"), {"odd", "int8"}, {"opt", "nf4"}, {"opt", "int8"}}) {
        // An adapter that changes nothing yet: merged, the model is what the format leaves of it.
        ASSERT_EQ(train_on(model, "zero", {"--steps", "0"}).exit_code, 0);
        ASSERT_EQ(run({"merge", "--model", path(model), "--adapter", path("zero"), "--out", path("plain"),
                       "--overwrite", "--quantize", format})
                      .exit_code,
                  0);
        EXPECT_NE(weights("plain"), weights(model));
        const std::vector<std::string> steps = {"--steps", "5", "--global-batch-size", "4", "--lr", "2e-2"};
        auto quantised = steps;
        quantised.insert(quantised.end(), {"--quantize", format});
        const auto mine = train_on(model, "out", quantised), expected = train_on("plain", "out", steps);
        const auto losses = member(mine.out, "loss"), norms = member(mine.out, "grad_norm");
        ASSERT_EQ(losses.size(), 5U) << mine.err;
        for (std::size_t i = 0; i < 5; ++i) {
            EXPECT_NEAR(losses[i] / member(expected.out, "loss").at(i), 1, 1e-6) << model << format << i;
            EXPECT_NEAR(norms[i] / member(expected.out, "grad_norm").at(i), 1, 3e-6) << model << format << i;
        }
    }
}

TEST_F(QuantizedProgramTest, AllShardingsWriteTheSameAdapter) {
    struct Run {
        int ranks;
        std::vector<std::string> flags;
    };
    const std::vector<Run> runs = {
        {2, {"--sharding", "none"}},
        {2, {"--sharding", "shard_optimizer"}},
        {2, {"--sharding", "shard_grad_op"}},
        {2, {"--sharding", "full_shard"}},
        {2, {"--sharding", "full_shard", "--broadcast-from-rank0", "--activation-checkpointing", "full"}},
        {2, {"--sharding", "none", "--broadcast-from-rank0"}},
        {4, {"--sharding", "none"}},
        {4, {"--sharding", "full_shard", "--broadcast-from-rank0"}},
        {4, {"--sharding", "hybrid_shard", "--shard-group", "2"}},
        {4, {"--sharding", "hybrid_shard_zero2", "--shard-group", "2"}},
    };
    for (const char* format : {"nf4", "int8"}) {
        std::map<int, std::string> adapters;  // by ranks
        for (const Run& run : runs) {
            std::vector<std::string> flags = {"--steps", "2", "--global-batch-size", "4", "--quantize", format};
            flags.insert(flags.end(), run.flags.begin(), run.flags.end());
            const auto result = train_on("odd", "out", flags, run.ranks);
            ASSERT_EQ(result.exit_code, 0) << result.err;
            const std::string bytes = adapter("out");
            EXPECT_EQ(adapters.emplace(run.ranks, bytes).first->second == bytes, true)
                << format << " " << run.ranks << " " << run.flags[1];
        }
    }
}

TEST_F(QuantizedProgramTest, DeterministicRunsWriteTheSameAdapterOnAnyNumberOfRanks) {
    const std::vector<std::string> flags = {"--steps",    "2",   "--global-batch-size", "4", "--deterministic",
                                            "--quantize", "nf4", "--sharding"};
    std::vector<std::string> adapters;
    for (const auto& [ranks, sharding] : {std::pair(1, "none"), {2, "full_shard"}, {4, "full_shard"}}) {
        auto all = flags;
        all.emplace_back(sharding);
        const auto result = train_on("odd", "out", all, ranks);
        ASSERT_EQ(result.exit_code, 0) << result.err;
        adapters.push_back(adapter("out"));
        EXPECT_EQ(adapters.back() == adapters.front(), true) << ranks;
    }
}

TEST_F(QuantizedProgramTest, EvaluationIsTheSameUnderEverySharding) {
    const double one = eval({"--model", path("odd"), "--quantize", "nf4"});
    EXPECT_GT(std::abs(one / eval({"--model", path("odd")}) - 1), 1e-6) << "nothing was quantised";
    EXPECT_NE(one, eval({"--model", path("odd"), "--quantize", "int8"}));
    for (const int ranks : {2, 4}) {
        for (const char* sharding : {"none", "full_shard", "hybrid_shard_zero2"}) {
            std::vector<std::string> flags = {"--model", path("odd"), "--quantize", "nf4", "--sharding", sharding};
            if (std::string(sharding).starts_with("hybrid")) flags.insert(flags.end(), {"--shard-group", "2"});
            EXPECT_NEAR(eval(flags, ranks), one, 1e-6) << ranks << sharding;
        }
    }
}

TEST_F(QuantizedProgramTest, AMergedModelIsTheOneThatWasTrainedOrSaysThatItIsNot) {
    ASSERT_EQ(
        train_on("odd", "adapter", {"--steps", "8", "--global-batch-size", "4", "--lr", "2e-2", "--quantize", "nf4"})
            .exit_code,
        0);
    const double trained = eval({"--model", path("odd"), "--adapter", path("adapter"), "--quantize", "nf4"});
    std::vector<std::string> merge = {"merge", "--model", path("odd"), "--adapter", path("adapter"), "--out"};
    const auto with = [&](std::vector<std::string> more) {
        auto all = merge;
        all.insert(all.end(), more.begin(), more.end());
        return run(all);
    };
    const auto exact = with({path("exact"), "--quantize", "nf4"});
    EXPECT_NE(exact.err.find("nf4"), std::string::npos) << exact.err;
    EXPECT_NEAR(eval({"--model", path("exact")}) / trained, 1, 1e-5);
    const auto plain = with({path("plain")});
    EXPECT_EQ(plain.exit_code, 0);
    EXPECT_NE(plain.err.find("--quantize nf4"), std::string::npos) << plain.err;
    EXPECT_GT(std::abs(eval({"--model", path("plain")}) / trained - 1), 1e-6);
    EXPECT_EQ(with({path("other"), "--quantize", "nf3"}).exit_code, 2);
    const auto foreign = with({path("other"), "--quantize", "int8"});
    EXPECT_EQ(foreign.exit_code, 2);
    EXPECT_NE(foreign.err.find("nf4"), std::string::npos) << foreign.err;
}

TEST_F(QuantizedProgramTest, AnAdapterOnAnotherBaseThanItsOwnIsUsedWithAWarning) {
    const std::vector<std::string> once = {"--steps", "1", "--global-batch-size", "4"};
    ASSERT_EQ(train_on("odd", "own", once).exit_code, 0);
    auto quantised = once;
    quantised.insert(quantised.end(), {"--quantize", "nf4"});
    ASSERT_EQ(train_on("odd", "nf4", quantised).exit_code, 0);
    // The --quantize that a warning names, which is given once.
    const auto warning = [&](const std::string& adapter, const std::string& quantize, int ranks) {
        const auto result = run({"eval", "--data", path("data.safetensors"), "--threads", "1", "--model", path("odd"),
                                 "--adapter", path(adapter), "--quantize", quantize},
                                ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        const std::string flag = "--quantize ";
        const std::size_t at = result.err.find(flag);
        if (at == std::string::npos) return std::string();
        EXPECT_EQ(result.err.find(flag, at + 1), std::string::npos) << result.err;
        const std::size_t value = at + flag.size();
        return result.err.substr(value, result.err.find(' ', value) - value);
    };
    EXPECT_EQ(warning("nf4", "none", 2), "nf4");
    EXPECT_EQ(warning("nf4", "int8", 1), "nf4");
    EXPECT_EQ(warning("nf4", "nf4", 1), "");
    EXPECT_EQ(warning("own", "none", 1), "");
    EXPECT_EQ(warning("own", "int8", 2), "none");
    const auto merged =
        run({"merge", "--model", path("odd"), "--adapter", path("own"), "--out", path("merged"), "--quantize", "int8"});
    EXPECT_EQ(merged.exit_code, 0) << merged.err;
    EXPECT_NE(merged.err.find("--quantize none"), std::string::npos) << merged.err;
    // The model has no tokenizer: what comes before that is the same.
    const auto generated = run({"generate", "--prompt", "a", "--model", path("odd"), "--adapter", path("nf4")});
    EXPECT_NE(generated.err.find("--quantize nf4"), std::string::npos) << generated.err;
}

TEST_F(QuantizedProgramTest, TrainingAQuantisedModelWholeIsRefusedByName) {
    for (const char* format : {"nf4", "int8"}) {
        for (const int ranks : {1, 2}) {
            const auto result = train("out", {"--steps", "1", "--quantize", format}, ranks);
            EXPECT_EQ(result.exit_code, 2);
            EXPECT_NE(result.err.find("--quantize"), std::string::npos) << result.err;
        }
    }
    EXPECT_EQ(train("out", {"--steps", "1", "--quantize", "nf3", "--lora-rank", "2"}).exit_code, 2);
}

TEST_F(QuantizedProgramTest, AnotherQuantisationDoesNotGoOn) {
    ASSERT_EQ(train_on("odd", "out", {"--steps", "5", "--time-limit", kAtOnce, "--quantize", "nf4"}).exit_code, 0);
    for (const char* other : {"none", "int8"}) {
        const auto result = train_on("odd", "out", {"--steps", "5", "--resume", "--quantize", other});
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_NE(result.err.find("--quantize \"nf4\" (now"), std::string::npos) << result.err;
    }
    EXPECT_EQ(train_on("odd", "out", {"--steps", "5", "--resume", "--quantize", "nf4"}).exit_code, 0);
}

TEST_F(QuantizedProgramTest, ThePlanIsWhatARunTakesAndGathersMoveQuantisedBytes) {
    ATOLL_SKIP_IF_SANITIZED();
    for (const char* format : {"nf4", "int8"}) expect_plan_holds({"--lora-rank", "8", "--quantize", format}, 40e6);
    const auto planned = [&](const std::string& format, const std::string& category) {
        const auto result =
            run({"plan", "--model", path("wide"), "--data", path("data.safetensors"), "--batch-size", "4",
                 "--lora-rank", "8", "--quantize", format, "--sharding", "full_shard", "--ranks", "2"});
        return member(result.out, category + "_bytes").at(0);
    };
    EXPECT_EQ(planned("none", "quantized"), 0);
    // Two layers of 4·256·256 − 2·256·128 + 3·256·640 elements; a rank has half of them.
    const double elements = 2 * (256 * 256 * 2 + 2 * 128 * 256 + 3 * 256 * 640) / 2.0;
    EXPECT_NEAR(planned("int8", "quantized") / elements, 1, 0.02);
    EXPECT_NEAR(planned("nf4", "quantized") / (elements * (0.5 + 1.0 / 64)), 1, 0.02);
}

}  // namespace
}  // namespace atl::program
