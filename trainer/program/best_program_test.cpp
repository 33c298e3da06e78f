#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "shared/base/testing/sanitizers.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

namespace fs = std::filesystem;
using Flags = std::vector<std::string>;

Flags with(Flags flags, const Flags& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
}

// The validations of an output: {step, loss}.
std::vector<std::pair<double, double>> validations_of(const std::string& out) {
    std::vector<std::pair<double, double>> validations;
    for (const auto& line : lines_of(out))
        if (line.contains("val_loss"))
            validations.emplace_back(line["step"].get<double>(), line["val_loss"].get<double>());
    return validations;
}

// Half of the rows for validation are like those of the training, which are soon learned; the others become ever less
// likely. So the best model is neither the first nor the last.
class BestProgramTest : public ProgramTest {
  protected:
    BestProgramTest() {
        std::vector<std::int32_t> ids;
        for (std::int32_t row = 0; row < 8; ++row)
            for (std::int32_t t = 0; t < 16; ++t) ids.push_back(row < 4 ? (row * 22 + t) % 90 : (row * t * t + 5) % 90);
        write_data("mixed.safetensors", 16, {{"input_ids", ids}});
        ids.erase(ids.begin(), ids.begin() + std::ptrdiff_t{4} * 16);
        write_data("other.safetensors", 16, {{"input_ids", ids}});
    }
    Flags flags(const std::string& steps, const Flags& more = {}) const {
        return with({"--steps", steps, "--global-batch-size", "8", "--lr", "0.05"}, more);
    }
    Flags keeping(const std::string& steps, const Flags& more = {}) const {
        return with(flags(steps, more), {"--val-data", path(validation_), "--eval-every", "1", "--save-best"});
    }
    std::string validation_ = "mixed.safetensors";
    // Of what `out`'s run said: that its best is the one of its validations, and what that step's weights are.
    void expect_best_of(const CommandResult& result, const std::string& out, const Flags& more, int ranks,
                        const std::string& file = "model.safetensors") const {
        ASSERT_EQ(result.exit_code, 0) << result.err;
        const auto all = validations_of(result.out);
        const auto best = std::ranges::min_element(all, {}, &std::pair<double, double>::second);
        ASSERT_NE(best, all.end()) << result.out;
        const auto summary = lines_of(result.out).back();
        EXPECT_EQ(summary["best_step"], best->first) << result.out;
        EXPECT_EQ(summary["best_val_loss"], best->second);
        const std::string alone = out + "-alone";
        ASSERT_EQ(train(alone, flags(std::to_string(static_cast<int>(best->first)), more), ranks).exit_code, 0);
        EXPECT_TRUE(*read_file(path(out + ".best/" + file)) == *read_file(path(alone + "/" + file))) << summary;
    }
    // A run that is asked to stop when it has told its first validation.
    void stop_after_one_validation(const std::string& out, const std::string& steps) const {
        const std::string script = std::string(kRunWhile) + R"sh(
            LOG=$1; shift
            LD_PRELOAD=$holder ATOLL_HOLD_AFTER='"val_loss":' ATOLL_HOLD="$LOG" "$@" >"$LOG" &
            until [ -e "$LOG.here" ]; do kill -0 $! || exit 79; sleep 0.01; done
            kill -TERM $!
            : >"$LOG.go"
            wait $!)sh";
        const auto stopped =
            run_under({"sh", "-c", script, "sh", path(out + ".log")}, command(train_arguments(out, keeping(steps)), 1));
        EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
        EXPECT_TRUE(fs::exists(path(out + ".state/state.safetensors"))) << stopped.err;
    }
};

TEST_F(ProgramTest, WhatComesEachEpochComesInTheStepWithItsLastRow) {
    const Flags flags = {"--epochs",     "3",    "--global-batch-size", "10", "--val-data", path("data.safetensors"),
                         "--eval-every", "epoch"};
    const auto result = train("out", flags);
    std::vector<double> steps;
    for (const auto& [step, loss] : validations_of(result.out)) steps.push_back(step);
    EXPECT_EQ(steps, (std::vector<double>{4, 7, 10})) << result.err << "rows 1 to 32, to 64 and to 96 of 10 a step";
    const auto wrong =
        train("wrong", {"--steps", "1", "--eval-every", "month", "--val-data", path("data.safetensors")});
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_NE(wrong.err.find("--eval-every: 'month' is neither a whole number nor epoch"), std::string::npos)
        << wrong.err;
}

TEST_F(BestProgramTest, TheModelOfTheLowestValidationLossIsKept) {
    for (const int ranks : {1, 2}) {
        const std::string out = "out" + std::to_string(ranks);
        const Flags sharded = {"--sharding", "full_shard"};
        const auto result = train(out, keeping("12", sharded), ranks);
        expect_best_of(result, out, sharded, ranks);
        const double best = lines_of(result.out).back()["best_step"];
        EXPECT_TRUE(best > 1 && best < 12) << result.out;
        EXPECT_EQ(run({"eval", "--model", path(out + ".best"), "--data", path("data.safetensors")}).exit_code, 0);
    }
    EXPECT_FALSE(lines_of(train("without", flags("2")).out).back().contains("best_step"));
}

TEST_F(BestProgramTest, TheBestAdapterIsKept) {
    const Flags lora = {"--lora-rank", "2", "--lora-targets", "all-linear"};
    expect_best_of(train("out", keeping("12", lora)), "out", lora, 1, "adapter_model.safetensors");
    EXPECT_TRUE(fs::exists(path("out.best/adapter_config.json")));
}

TEST_F(BestProgramTest, ARunThatGoesOnKnowsTheBestSoFar) {
    ATOLL_SKIP_IF_SANITIZED();
    const auto whole = train("whole", keeping("4"));
    stop_after_one_validation("stopped", "4");
    const auto first = read_file(path("stopped.best/model.safetensors"));
    ASSERT_TRUE(first.ok()) << "the model of step 1 is kept before the run stops";
    const auto resumed = train("stopped", with(keeping("4"), {"--resume"}));
    EXPECT_EQ(lines_of(resumed.out).back()["best_step"], lines_of(whole.out).back()["best_step"]) << resumed.err;
    EXPECT_TRUE(*read_file(path("stopped.best/model.safetensors")) == *read_file(path("whole.best/model.safetensors")));
}

TEST_F(BestProgramTest, ABestModelThatWasRemovedIsNoneToBeBetterThan) {
    ATOLL_SKIP_IF_SANITIZED();
    validation_ = "other.safetensors";
    ASSERT_EQ(lines_of(train("whole", keeping("4")).out).back()["best_step"], 1) << "the first is the best";
    stop_after_one_validation("out", "4");
    fs::remove_all(path("out.best"));
    const auto resumed = train("out", with(keeping("4"), {"--resume"}));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    const auto later = validations_of(resumed.out);
    const auto best = std::ranges::min_element(later, {}, &std::pair<double, double>::second);
    EXPECT_EQ(lines_of(resumed.out).back()["best_step"], best->first);
    EXPECT_TRUE(fs::exists(path("out.best/model.safetensors")));
}

TEST_F(BestProgramTest, AModelThatCannotBeKeptIsToldAndTheRunGoesOn) {
    ATOLL_SKIP_IF_SANITIZED();
    const std::string script = std::string(kRunWhile) + R"sh(
        LOG=$1; place=$2; shift 2
        run_while "touch $place" "$@")sh";
    const auto result = run_under({"sh", "-c", script, "sh", path("log"), path("out.best")},
                                  command(train_arguments("out", keeping("3")), 1));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find("has the lowest validation loss so far and cannot be kept"), std::string::npos)
        << result.err;
    EXPECT_TRUE(fs::exists(path("out/model.safetensors")));
    EXPECT_FALSE(lines_of(*read_file(path("log"))).back().contains("best_step"));
}

TEST_F(BestProgramTest, WhatMakesNoSenseIsRefusedAndOthersFilesStay) {
    const auto expect_refused = [&](const std::string& out, const Flags& more, const std::string& words) {
        const auto result = train(out, more);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
        EXPECT_FALSE(fs::exists(path(out))) << out;
    };
    expect_refused("one", flags("1", {"--save-best"}), "--save-best: means nothing without --val-data");
    expect_refused("two", keeping("1", {"--update-format", "int8"}), "--save-best: means nothing with --update-format");
    fs::create_directory(path("three.best"));
    ASSERT_TRUE(write_file_atomic(path("three.best/letters.txt"), "dear all").ok());
    expect_refused("three", keeping("1"), "three.best");
    EXPECT_EQ(*read_file(path("three.best/letters.txt")), "dear all");
}

}  // namespace
}  // namespace atl::program
