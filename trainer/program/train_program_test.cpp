#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <thread>
#include <utility>

#include "shared/base/testing/sanitizers.h"
#include "trainer/kernels/testing/worse.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

class TrainProgramTest : public ProgramTest {};

TEST_F(TrainProgramTest, TheLossFallsAndTheModelIsBetter) {
    const auto result = train("out", {"--steps", "40", "--global-batch-size", "8", "--lr", "1e-2"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto losses = member(result.out, "loss");
    ASSERT_EQ(losses.size(), 40U);
    EXPECT_NEAR(losses.front(), std::log(90), 0.1);
    EXPECT_LT(losses.back(), 0.7 * losses.front());
    const auto before = run({"eval", "--model", path("model"), "--data", path("data.safetensors")});
    const auto after = run({"eval", "--model", path("out"), "--data", path("data.safetensors")});
    EXPECT_LT(member(after.out, "perplexity").at(0), 0.5 * member(before.out, "perplexity").at(0));
}

TEST_F(TrainProgramTest, StepsAndSummarySayWhatWasDone) {
    const auto result = train("out", {"--epochs", "2", "--batch-size", "4", "--grad-accum", "2", "--peak-tflops", "0"});
    const auto lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 9U) << result.err;  // 2 × 32 rows in steps of 8
    for (const char* key : {"step", "time_unix_s", "loss", "lr", "grad_norm", "tokens_per_s", "samples_per_s", "tflops",
                            "mfu", "hfu", "peak_bytes", "exposed_comm_s", "eta_s", "step_s"}) {
        EXPECT_TRUE(lines[0].contains(key)) << key;
    }
    EXPECT_GT(lines[0]["peak_bytes"].get<std::int64_t>(), 1 << 20);
    EXPECT_EQ(lines[0]["exposed_comm_s"], 0) << "of one rank";
    EXPECT_GT(lines[0]["eta_s"].get<double>(), 0);
    EXPECT_GT(lines[0]["time_unix_s"].get<double>(), 1.7e9);
    EXPECT_LE(lines[0]["time_unix_s"].get<double>(), lines[7]["time_unix_s"].get<double>());
    EXPECT_EQ(lines[7]["eta_s"], 0) << "no step is left";
    EXPECT_EQ(lines[8]["summary"], true);
    EXPECT_EQ(lines[8]["steps"], 8);
    EXPECT_EQ(lines[8]["samples"], 64);
    EXPECT_EQ(lines[8]["tokens"], 64 * 15);
    EXPECT_EQ(lines[8]["resumable"], false);
    EXPECT_GT(lines[8]["peak_tflops"].get<double>(), 0);
}

TEST_F(TrainProgramTest, StepsOfSeveralRanksSayHowLongOneWaited) {
    const auto result = train("out", {"--steps", "4", "--batch-size", "2", "--sharding", "full_shard"}, 2);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    for (const auto& line : lines_of(result.out)) {
        if (line.contains("summary")) continue;
        const double step_s = 2 * 2 * 16 / line["tokens_per_s"].get<double>();
        EXPECT_GT(line["exposed_comm_s"].get<double>(), 0) << line;
        EXPECT_LT(line["exposed_comm_s"].get<double>(), step_s) << line;
    }
}

TEST_F(TrainProgramTest, TheSummaryHasThePeakThatMfuIsTakenOf) {
    const auto result = train("out", {"--steps", "1", "--batch-size", "2", "--peak-tflops", "0.25"}, 2);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(lines_of(result.out).back()["peak_tflops"], 0.25);
}

// Counted token by token: a multiply-add is 2, and token t sees t + 1 keys.
TEST_F(TrainProgramTest, MfuAndHfuAreSharesOfThePeakByTheTextbooksCount) {
    constexpr double kRows = 4, kTokens = 16, kVocabulary = 90, kHidden = 32, kInner = 48;
    constexpr double kHeads = 4, kKeyHeads = 2, kChannels = 8;
    double layer = 0;  // of one row
    double head = 0;
    for (int t = 0; t < static_cast<int>(kTokens); ++t) {
        const double query_and_output = 2 * kHidden * kHeads * kChannels;
        const double key_and_value = 2 * kHidden * kKeyHeads * kChannels;
        const double gate_up_and_down = 3 * kHidden * kInner;
        const double scores_and_mean = 2 * kHeads * (t + 1) * kChannels;
        layer += 2 * (query_and_output + key_and_value + gate_up_and_down + scores_and_mean);
        head += 2 * kHidden * kVocabulary;
    }
    const double forward = kRows * (2 * layer + head);
    double attention_again = 0;
    for (int t = 0; t < static_cast<int>(kTokens); ++t) attention_again += kRows * 4 * kHeads * (t + 1) * kChannels;
    const double gate_and_up_again = kRows * kTokens * 4 * kHidden * kInner;
    const double again = kRows * (layer - kTokens * 2 * kHidden * kInner);  // of a layer; nobody reads its output
    struct Case {
        std::vector<std::string> flags;
        int ranks;
        double used;      // operations of a step
        double repeated;  // and those that are made again
    };
    const std::vector<Case> cases = {
        {{}, 1, 3 * forward, 0},
        {{}, 2, 3 * forward, 0},
        {{"--lora-rank", "2"}, 1, 2 * forward, 0},
        {{"--activation-checkpointing", "feed-forward"}, 1, 3 * forward, 2 * gate_and_up_again},
        {{"--activation-checkpointing", "selective"}, 1, 3 * forward, again},
        {{"--activation-checkpointing", "all-but-attention"}, 1, 3 * forward, 2 * (again - attention_again)},
        {{"--activation-checkpointing", "full", "--checkpoint-layers", "1"}, 1, 3 * forward, again},
        {{"--activation-checkpointing", "full"}, 1, 3 * forward, 2 * again},
        {{"--activation-checkpointing", "full", "--lora-rank", "2"}, 1, 2 * forward, 2 * again}};
    int number = 0;
    for (const auto& [flags, ranks, used, repeated] : cases) {
        std::vector<std::string> all = {"--steps", "1", "--global-batch-size", "4", "--peak-tflops", "0.5"};
        all.insert(all.end(), flags.begin(), flags.end());
        const auto result = train("out" + std::to_string(++number), all, ranks);
        ASSERT_EQ(result.exit_code, 0) << result.err;
        const auto step = lines_of(result.out).at(0);
        const double step_s = kRows * kTokens / step["tokens_per_s"].get<double>();
        const double at_peak = step_s * ranks * 0.5e12;
        EXPECT_NEAR(step["mfu"].get<double>() * at_peak / used, 1, 1e-9) << step;
        EXPECT_NEAR(step["tflops"].get<double>() * ranks * step_s * 1e12 / used, 1, 1e-9) << step;
        EXPECT_NEAR(step["samples_per_s"].get<double>() * step_s, 4, 1e-9) << step;
        EXPECT_NEAR(step["hfu"].get<double>() * at_peak / (used + repeated), 1, 1e-9) << step;
    }
}

TEST_F(TrainProgramTest, CoresThatALauncherKeptFromItsRanksAreToldOnce) {
    if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core";
    const auto arguments = train_arguments("out", {"--steps", "1", "--global-batch-size", "2", "--threads", "2"});
    using Words = std::vector<std::string>;
    const Words bound = {"sh", "-c", "exec taskset -c $(taskset -cp $$ | grep -oE '[0-9]+$') \"$@\"", "sh"};
    const auto err_of = [&](Words launcher, const Words& start) {
        launcher.insert(launcher.end(), start.begin(), start.end());
        const auto result = run_under(launcher, command(arguments, 1));
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return result.err;
    };
    for (const char* ranks : {"1", "2"}) {
        const std::string told = err_of({ATOLL_MPIRUN, ranks}, bound);
        EXPECT_NE(told.find("--bind-to none"), std::string::npos) << ranks << told;
        EXPECT_EQ(told.find("--bind-to none"), told.rfind("--bind-to none")) << told;
    }
    EXPECT_EQ(err_of({ATOLL_MPIRUN, "2"}, {}).find("--bind-to none"), std::string::npos);
    EXPECT_EQ(err_of({}, bound).find("--bind-to none"), std::string::npos) << "without a launcher it was meant";
}

TEST_F(TrainProgramTest, FewerRanksThanALauncherOrWhoAskedForThemSaysAreRefused) {
    using Words = std::vector<std::string>;
    const auto started = [&](const Words& launcher) {
        Words starter = {"env", "ASAN_OPTIONS=detect_leaks=0"};  // MPI's own, as in tests/mpirun.sh
        starter.insert(starter.end(), launcher.begin(), launcher.end());
        return run_under(starter, command(train_arguments("out", {"--steps", "1", "--global-batch-size", "2"}), 1));
    };
    const std::vector<Words> apart = {
        {"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0"},  // srun without --mpi=pmix
        {"PMI_SIZE=2", "PMI_RANK=0"},                  // the launcher of another MPI
        {"ATOLL_RANKS=2"},
        {"ATOLL_RANKS=3", ATOLL_MPIRUN, "2"},
    };
    for (const Words& launcher : apart) {
        const auto refused = started(launcher);
        EXPECT_EQ(refused.exit_code, 2) << launcher[0] << refused.err;
    }
    const std::vector<Words> together = {
        {"SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0"},
        {"SLURM_NTASKS=2", "SLURM_PROCID=0", ATOLL_MPIRUN, "2"},          // in a batch script
        {"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", ATOLL_MPIRUN, "1"},  // in a step
        {"ATOLL_RANKS=2", ATOLL_MPIRUN, "2"},
    };
    for (const Words& launcher : together) EXPECT_EQ(started(launcher).exit_code, 0) << launcher[0];
}

TEST_F(TrainProgramTest, RanksShardingAndAccumulationDoNotChangeTheLosses) {
    const std::vector<std::string> steps = {"--steps", "6", "--global-batch-size", "8", "--lr", "3e-3"};
    const auto flags = [&](std::vector<std::string> more) {
        more.insert(more.begin(), steps.begin(), steps.end());
        return more;
    };
    const auto reference = member(train("alone", steps).out, "loss");
    ASSERT_EQ(reference.size(), 6U);
    const std::vector<std::pair<int, std::vector<std::string>>> variants = {
        {1, {"--batch-size", "2"}},
        {2, {"--sharding", "none"}},
        {2, {"--sharding", "full_shard", "--activation-checkpointing", "full"}},
        {4, {"--sharding", "full_shard", "--batch-size", "1"}}};
    for (const auto& [ranks, more] : variants) {
        const auto losses = member(train("ranks", flags(more), ranks).out, "loss");
        ASSERT_EQ(losses.size(), 6U);
        for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(losses[i], reference[i], 1e-5) << ranks << " ranks";
    }
}

TEST_F(TrainProgramTest, AccumulationOverUnequalNumbersOfTargetsIsOneMean) {
    golden_rows_ = "unequal.safetensors";
    write_unequal_rows();
    for (const char* const golden : {"training", "training/opt"}) {
        golden_ = golden;
        const auto reference = train_golden({"--batch-size", "4"});
        for (const auto& [ranks, rows] : {std::pair{1, "2"}, std::pair{1, "1"}, std::pair{2, "1"}}) {
            const auto result = train_golden({"--batch-size", rows}, ranks);
            for (const char* number : {"loss", "grad_norm"}) {
                const auto got = member(result.out, number), wanted = member(reference.out, number);
                ASSERT_EQ(got.size(), 20U) << result.err;
                for (std::size_t i = 0; i < 20; ++i) {
                    EXPECT_NEAR(got[i] / wanted[i], 1, 1e-6) << golden << " " << number << " " << i << " by " << rows;
                }
            }
        }
    }
}

// A control: a step that takes the mean of its micro-steps' means must be far off.
TEST_F(TrainProgramTest, TheMeanOfTheMicroStepsMeansIsFarOff) {
    golden_rows_ = "unequal.safetensors";
    write_unequal_rows();
    const double whole = member(train_golden({"--batch-size", "1"}).out, "loss").at(0);
    const auto alone = run({"train", "--model", path("golden"), "--data", path(golden_rows_), "--out", path("still"),
                            "--steps", "4", "--batch-size", "1", "--shuffle", "off", "--lr", "0", "--threads", "1"});
    const auto losses = member(alone.out, "loss");  // of each row, by the same weights
    ASSERT_EQ(losses.size(), 4U) << alone.err;
    EXPECT_GT(std::abs(std::accumulate(losses.begin(), losses.end(), 0.0) / 4 / whole - 1), 1e-3);
}

TEST_F(TrainProgramTest, AllShardingsWriteTheSameModel) {
    const std::vector<std::string> steps = {"--steps", "3", "--global-batch-size", "4", "--sharding"};
    std::vector<std::string> models;
    for (const char* sharding : {"none", "shard_optimizer", "shard_grad_op", "full_shard"}) {
        auto flags = steps;
        flags.emplace_back(sharding);
        ASSERT_EQ(train(sharding, flags, 2).exit_code, 0);
        models.push_back(weights(sharding));
    }
    EXPECT_NE(models[0], weights("model"));
    for (const std::string& model : models) EXPECT_EQ(model == models[0], true);
}

TEST_F(TrainProgramTest, HybridShardingWritesTheModelOfTheOtherModes) {
    const std::vector<std::string> steps = {"--steps", "3", "--global-batch-size", "4", "--sharding"};
    const auto flags = [&](std::vector<std::string> more) {
        more.insert(more.begin(), steps.begin(), steps.end());
        return more;
    };
    const auto full = train("full", flags({"full_shard"}), 4);
    for (const char* sharding : {"hybrid_shard", "hybrid_shard_zero2"}) {
        const auto hybrid = train("hybrid", flags({sharding, "--shard-group", "2"}), 4);
        ASSERT_EQ(hybrid.exit_code, 0) << hybrid.err;
        EXPECT_EQ(weights("hybrid") == weights("full"), true) << sharding;
        EXPECT_EQ(member(hybrid.out, "grad_norm"), member(full.out, "grad_norm"));
        const auto stopped = train("stopped", flags({sharding, "--shard-group", "2", "--time-limit", "0.000001"}), 4);
        ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
        const auto resumed = train("stopped", flags({sharding, "--shard-group", "2", "--resume"}), 4);
        EXPECT_EQ(member(resumed.out, "loss").size(), 2U) << resumed.err;
        EXPECT_EQ(weights("stopped") == weights("full"), true) << sharding;
    }
}

TEST_F(TrainProgramTest, DeterministicLossesAreTheSameBitsForAllRanksAndShardings) {
    const std::vector<std::string> steps = {
        "--steps", "4", "--global-batch-size", "12", "--val-data", path("data.safetensors"), "--val-samples", "7"};
    const auto flags = [&](std::vector<std::string> more) {
        more.insert(more.begin(), steps.begin(), steps.end());
        return more;
    };
    const auto reference = train("reference", flags({"--deterministic"}));
    ASSERT_EQ(member(reference.out, "loss").size(), 4U) << reference.err;
    const std::vector<std::pair<int, std::vector<std::string>>> variants = {
        {1, {"--batch-size", "4", "--activation-checkpointing", "full"}},
        {2, {"--sharding", "shard_optimizer"}},
        {3, {"--sharding", "shard_grad_op"}},
        {4, {"--sharding", "hybrid_shard", "--shard-group", "2"}}};
    for (const auto& [ranks, more] : variants) {
        auto deterministic = more;
        deterministic.emplace_back("--deterministic");
        const auto result = train("ranks", flags(deterministic), ranks);
        for (const char* name : {"loss", "grad_norm", "val_loss"}) {
            EXPECT_EQ(member(result.out, name), member(reference.out, name)) << name << " on " << ranks << " ranks";
        }
        EXPECT_EQ(weights("ranks") == weights("reference"), true) << ranks << " ranks";
        const auto without = train("ranks", flags(more), ranks);
        EXPECT_NE(member(without.out, "loss"), member(reference.out, "loss")) << "control, " << ranks << " ranks";
    }
}

// The same with products of several tiles and several blocks of depth, and with other numbers of threads.
TEST_F(TrainProgramTest, TheBitsOfAWideModelDoNotDependOnThreadsAndRanks) {
    auto config = nlohmann::json::parse(read_file(path("config.json")).value());
    config.update({{"hidden_size", 320},
                   {"intermediate_size", 704},
                   {"vocab_size", 700},
                   {"num_hidden_layers", 1},
                   {"max_position_embeddings", 300}});
    ASSERT_TRUE(write_file_atomic(path("wide.json"), config.dump()).ok());
    ASSERT_EQ(run({"init", "--config", path("wide.json"), "--out", path("model"), "--overwrite"}).exit_code, 0);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 4 * 300; ++i) ids.push_back(i * 7 % 690);
    write_data("data.safetensors", 300, {{"input_ids", ids}});
    const std::vector<std::string> steps = {"--steps", "2", "--global-batch-size", "4", "--deterministic", "--threads"};
    const auto with_threads = [&](const std::string& threads) {
        auto flags = steps;
        flags.push_back(threads);
        return flags;
    };
    const auto reference = train("reference", with_threads("1"));
    ASSERT_EQ(member(reference.out, "loss").size(), 2U) << reference.err;
    for (const auto& [threads, ranks] : {std::pair("3", 1), std::pair("2", 2), std::pair("1", 4)}) {
        auto flags = with_threads(threads);
        if (ranks > 1) flags.insert(flags.end(), {"--sharding", "full_shard"});
        const auto result = train("other", flags, ranks);
        EXPECT_EQ(member(result.out, "loss"), member(reference.out, "loss")) << threads << " threads " << ranks;
        EXPECT_EQ(weights("other") == weights("reference"), true) << threads << " threads, " << ranks << " ranks";
    }
}

TEST_F(TrainProgramTest, RanksOfTwoKindsAreNeverDeterministicAndAlwaysTold) {
    if (run({"report"}).out.find("cpu (baseline") != std::string::npos) GTEST_SKIP() << "there is only one kind";
    const auto mixed = [&](const std::vector<std::string>& flags) {
        const std::string script =
            "[ \"$OMPI_COMM_WORLD_RANK\" = 0 ] || export ATOLL_INSTRUCTION_SET=baseline; exec \"$@\"";
        return run_under({ATOLL_MPIRUN, "2", "sh", "-c", script, "sh"}, command(train_arguments("out", flags), 1));
    };
    const auto told = [](const CommandResult& result) {
        EXPECT_NE(result.err.find("cpu (baseline, "), std::string::npos) << result.err;
    };
    const std::vector<std::string> flags = {"--steps", "1", "--global-batch-size", "2"};
    auto deterministic = flags;
    deterministic.emplace_back("--deterministic");
    const auto refused = mixed(deterministic);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    told(refused);
    const auto warned = mixed(flags);
    EXPECT_EQ(warned.exit_code, 0) << warned.err;
    told(warned);
    const auto alike = train("out", deterministic, 2);
    EXPECT_EQ(alike.err.find("cpu ("), std::string::npos) << alike.err;
}

TEST_F(TrainProgramTest, TheEnvironmentOfOneDnnChoosesNoOtherKernels) {
    if (run({"report"}).out.find("cpu (avx512, oneDNN ") == std::string::npos) GTEST_SKIP() << "oneDNN is not in use";
    make_wide_model("model");  // whose products are of several blocks with narrower kernels
    const std::vector<std::string> flags = {"--steps", "2", "--global-batch-size", "4", "--deterministic"};
    const auto whole = train("whole", flags);
    for (const char* variable : {"ONEDNN_MAX_CPU_ISA=AVX2", "DNNL_MAX_CPU_ISA=AVX2"}) {
        const auto capped = run_under({"env", variable}, command(train_arguments("capped", flags), 1));
        EXPECT_EQ(member(capped.out, "loss"), member(whole.out, "loss")) << variable << capped.err;
        EXPECT_EQ(weights("capped") == weights("whole"), true) << variable;
    }
}

TEST_F(TrainProgramTest, WeightsThatRank0SendsAreThoseThatEachRankReads) {
    const std::vector<std::string> steps = {"--steps", "2", "--global-batch-size", "4", "--sharding", "full_shard"};
    auto broadcast = steps;
    broadcast.emplace_back("--broadcast-from-rank0");
    ASSERT_EQ(train("each", steps, 4).exit_code, 0);
    const auto sent = train("sent", broadcast, 4);
    ASSERT_EQ(sent.exit_code, 0) << sent.err;
    EXPECT_EQ(weights("sent") == weights("each"), true);
    const auto read = run({"eval", "--model", path("sent"), "--data", path("data.safetensors")}, 2);
    const auto got =
        run({"eval", "--model", path("sent"), "--data", path("data.safetensors"), "--broadcast-from-rank0"}, 2);
    EXPECT_EQ(member(got.out, "loss"), member(read.out, "loss")) << got.err;
}

TEST_F(TrainProgramTest, TheWeightsThatOnlyRank0HasAreThoseOfAllRanks) {
    ASSERT_EQ(run({"init", "--config", path("config.json"), "--out", path("other"), "--seed", "2"}).exit_code, 0);
    // Rank 0 is given the model, the others another one.
    const auto apart = [&](const std::string& command, const std::vector<std::string>& arguments) {
        const std::string script = "[ \"$OMPI_COMM_WORLD_RANK\" = 0 ] && model=" + path("model") +
                                   " || model=" + path("other") + "; exec " ATOLL_TRAINER " " + command +
                                   " --model $model --data " + path("data.safetensors") +
                                   " --sharding full_shard \"$@\"";
        return run_under({ATOLL_MPIRUN, "2", "sh", "-c", script, "sh"}, arguments);
    };
    const auto eval = [&](const std::vector<std::string>& more) {
        return member(apart("eval", more).out, "loss").at(0);
    };
    const auto alone = run({"eval", "--model", path("model"), "--data", path("data.safetensors")});
    EXPECT_NEAR(eval({"--broadcast-from-rank0"}), member(alone.out, "loss").at(0), 1e-6);
    EXPECT_GT(std::abs(eval({}) - member(alone.out, "loss").at(0)), 1e-4) << "control: each rank reads its own";

    const std::vector<std::string> lora = {"--lora-rank", "2", "--steps", "1", "--global-batch-size", "2"};
    auto sent = lora;
    sent.insert(sent.end(), {"--broadcast-from-rank0", "--out", path("sent")});
    ASSERT_EQ(train("alone", lora).exit_code, 0);
    ASSERT_EQ(apart("train", sent).exit_code, 0);
    const auto sha256 = [&](const std::string& out) {
        return nlohmann::json::parse(read_file(path(out + ".state/finished.json")).value())["model"]["sha256"];
    };
    EXPECT_EQ(sha256("sent"), sha256("alone"));
    const auto warns = [](const CommandResult& result) {
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return result.err.find("sha256") != std::string::npos;
    };
    EXPECT_FALSE(
        warns(run({"eval", "--model", path("model"), "--data", path("data.safetensors"), "--adapter", path("sent")})));
    EXPECT_FALSE(warns(apart("eval", {"--adapter", path("sent"), "--broadcast-from-rank0"})));
    EXPECT_TRUE(warns(apart("eval", {"--adapter", path("sent")}))) << "control";
}

TEST_F(TrainProgramTest, AWeightThatIsNotANumberIsNamedWhoeverReadsIt) {
    const std::string file = path("model") + "/model.safetensors";
    std::string bytes = weights("model");
    bytes.replace(bytes.size() - 2, 2, "\xff\x7f");  // NaN in fp16
    ASSERT_TRUE(write_file_atomic(file, bytes).ok());
    for (const auto& flags : std::vector<std::vector<std::string>>{{}, {"--broadcast-from-rank0"}}) {
        std::vector<std::string> all = {"--steps", "1", "--sharding", "full_shard"};
        all.insert(all.end(), flags.begin(), flags.end());
        const auto result = train("out", all, 2);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_NE(result.err.find("weight"), std::string::npos) << result.err;
    }
}

TEST_F(TrainProgramTest, EvaluationUnderRanksIsThatOfOne) {
    const std::vector<std::string> arguments = {
        "eval",          "--model", path("model"),  "--data", path("data.safetensors"),
        "--val-samples", "7",       "--batch-size", "2"};
    const auto alone = run(arguments);
    auto sharded = arguments;
    sharded.insert(sharded.end(), {"--sharding", "hybrid_shard"});
    EXPECT_EQ(member(alone.out, "tokens").at(0), 7 * 15);
    for (const int ranks : {2, 3}) {  // so that a rank has fewer rows in the last round, or none
        const auto result = run(sharded, ranks);
        EXPECT_NEAR(member(result.out, "loss").at(0), member(alone.out, "loss").at(0), 1e-7) << result.err;
        EXPECT_EQ(member(result.out, "tokens").at(0), 7 * 15);
    }
}

TEST_F(TrainProgramTest, TheModelKeepsTheBasesTypeUnlessToldOtherwise) {
    ASSERT_EQ(train("same", {"--steps", "1"}).exit_code, 0);
    ASSERT_EQ(train("wide", {"--steps", "1", "--save-dtype", "fp32"}).exit_code, 0);
    EXPECT_NE(weights("same").substr(0, 300).find("\"F16\""), std::string::npos);
    EXPECT_NE(weights("wide").substr(0, 300).find("\"F32\""), std::string::npos);
    EXPECT_EQ(run({"eval", "--model", path("wide"), "--data", path("data.safetensors")}).exit_code, 0);
}

TEST_F(TrainProgramTest, ValidationComesEveryFewStepsAndAtTheEnd) {
    const auto result = train("out", {"--steps", "5", "--eval-every", "2", "--val-data", path("data.safetensors")});
    EXPECT_EQ(member(result.out, "val_loss").size(), 3U) << result.out << result.err;
}

TEST_F(TrainProgramTest, ThePlanIsWhatARunTakes) {
    ATOLL_SKIP_IF_SANITIZED();
    for (const char* recompute : {"none", "feed-forward", "selective", "all-but-attention", "full"}) {
        expect_plan_holds({"--activation-checkpointing", recompute});
    }
}

TEST_F(TrainProgramTest, ZeroStepsWriteTheModelAsItWas) {
    ASSERT_EQ(train("out", {"--steps", "0"}).exit_code, 0);
    EXPECT_EQ(weights("out") == weights("model"), true);
}

TEST_F(TrainProgramTest, AStepWithoutATargetChangesNothing) {
    std::vector<std::int32_t> ids(16 * 8);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 61);
    std::vector<std::int32_t> labels = ids;
    std::fill_n(labels.begin() + 16 * 4, 16 * 4, -100);
    write_data("data.safetensors", 16, {{"input_ids", ids}, {"labels", labels}});
    const auto train_unshuffled = [&](const std::string& out, std::vector<std::string> flags, int ranks) {
        for (const char* flag : {"--shuffle", "off", "--global-batch-size", "4", "--schedule", "constant",
                                 "--weight-decay", "0.1", "--lr", "1e-2"})
            flags.emplace_back(flag);
        return train(out, flags, ranks);
    };
    for (const int ranks : {1, 2}) {
        const auto without = train_unshuffled("without", {"--train-samples", "4", "--steps", "2"}, ranks);
        ASSERT_EQ(without.exit_code, 0) << without.err;
        const auto with = train_unshuffled("with", {"--steps", "3"}, ranks);
        ASSERT_EQ(with.exit_code, 0) << with.err;
        const auto lines = lines_of(with.out);
        EXPECT_TRUE(lines[1]["loss"].is_null()) << lines[1];
        EXPECT_EQ(lines[2]["loss"], lines_of(without.out)[1]["loss"]) << "the second update of both";
        EXPECT_EQ(lines[3]["skipped_steps"], 1);
        EXPECT_EQ(lines[3]["loss"], lines_of(without.out)[2]["loss"]);
        EXPECT_EQ(weights("with") == weights("without"), true) << ranks;
    }
}

TEST_F(TrainProgramTest, TheModelThatIsReadIsNeverWrittenOver) {
    const std::string before = weights("model");
    const auto trained = train("model", {"--steps", "1"});
    EXPECT_EQ(trained.exit_code, 2);
    EXPECT_NE(trained.err.find("--out"), std::string::npos) << trained.err;
    ASSERT_EQ(train("adapter", {"--steps", "1", "--lora-rank", "2"}).exit_code, 0);
    const auto merged =
        run({"merge", "--model", path("model"), "--adapter", path("adapter"), "--out", path("./model")});
    EXPECT_EQ(merged.exit_code, 2);
    EXPECT_NE(merged.err.find("--out"), std::string::npos) << merged.err;
    EXPECT_EQ(weights("model") == before, true);
}

TEST_F(TrainProgramTest, ARunFileSetsFlagsAndTheCommandLineWins) {
    ASSERT_TRUE(write_file_atomic(path("run.json"), R"({"steps": 9, "lr": 0.5, "batch_size": 2})").ok());
    const auto result = train("out", {"--steps", "2", "--config", path("run.json")});
    EXPECT_EQ(member(result.out, "lr"), (std::vector<double>{0.5, 0.5})) << result.err;
    EXPECT_EQ(lines_of(result.out).back()["samples"], 4);
}

TEST_F(TrainProgramTest, TheFirstTwentyStepsAreThoseOfTransformersAndTorch) {
    for (const char* const golden :
         {"training", "training/opt", "training/mistral", "training/qwen2", "training/qwen3"}) {
        golden_ = golden;
        const nlohmann::json expected = golden_steps();
        for (const auto& [ranks, sharding] : {std::pair{1, "none"}, std::pair{2, "full_shard"}}) {
            const auto result = train_golden({"--sharding", sharding}, ranks);
            const auto losses = member(result.out, "loss");
            const auto norms = member(result.out, "grad_norm");
            ASSERT_EQ(losses.size(), 20U) << result.err;
            for (std::size_t i = 0; i < 20; ++i) {
                EXPECT_NEAR(losses[i] / expected["loss"][i].get<double>(), 1, 1e-5) << golden << " step " << i + 1;
                EXPECT_NEAR(norms[i] / expected["grad_norm"][i].get<double>(), 1, 1e-4) << golden << " step " << i + 1;
            }
        }
    }
}

// Controls: the tolerances, in fp32 and of half storage, can tell.
TEST_F(TrainProgramTest, LabelsOffByOneAndNormsThatDoNotDecayAreFarOff) {
    const auto furthest = [&](const std::vector<std::string>& flags) {
        const auto result = train_golden(flags);
        const nlohmann::json expected = golden_steps();
        const auto losses = member(result.out, "loss");
        EXPECT_EQ(losses.size(), 20U) << result.err;
        double worst = 0;
        for (std::size_t i = 0; i < losses.size(); ++i) {
            worst = kernels::worse(worst, std::abs(losses[i] / expected["loss"][i].get<double>() - 1));
        }
        return worst;
    };
    for (const char* const golden : {"training", "training/opt"}) {
        golden_ = golden;
        golden_rows_ = "golden.safetensors";
        EXPECT_LE(furthest({}), 1e-5) << golden;
        EXPECT_GT(furthest({"--no-decay-norms"}), 1e-4) << golden;
        golden_rows_ = "shifted.safetensors";
        write_shifted_rows();
        EXPECT_GT(furthest({}), 2 * 5e-3) << golden;  // half storage may be 5e-3 off
    }
}

TEST_F(TrainProgramTest, OptTrainsInBf16AndIsReadAgain) {
    golden_ = "training/opt";
    const nlohmann::json expected = golden_steps();
    const auto trained = train_golden({"--precision", "bf16", "--activation-checkpointing", "full"});
    const auto losses = member(trained.out, "loss");
    ASSERT_EQ(losses.size(), 20U) << trained.err;
    for (std::size_t i = 0; i < 20; ++i)
        EXPECT_NEAR(losses[i] / expected["loss"][i].get<double>(), 1, 5e-3) << "step " << i + 1;
    const auto evaluated = run({"eval", "--model", path("out"), "--data", path("golden.safetensors")});
    ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
    EXPECT_LT(member(evaluated.out, "loss").at(0), losses.front());
}

TEST_F(TrainProgramTest, HelpSaysWhatEachFlagTakesAndItsDefault) {
    const auto result = run({"train", "--help"});
    EXPECT_EQ(result.exit_code, 0);
    // CLI11 writes a default as "=0.0003" or, from 2.5 on, as " [0.0003]".
    for (const char* line : {"--lr NUMBER( \\[|=)0\\.0003\\]?\\s", "--steps INT\\s",
                             "--optimizer adamw\\|sgd\\|muon( \\[|=)adamw\\]?\\s", "--resume\\s"})
        EXPECT_TRUE(std::regex_search(result.out, std::regex(line))) << line << " is not in " << result.out;
}

}  // namespace
}  // namespace atl::program
