#include <array>
#include <map>
#include <string>
#include <vector>

#include "shared/base/testing/sanitizers.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

namespace fs = std::filesystem;

const fs::path kTokenizers = ATOLL_FIXTURES "/tokenizers";
const std::string kTokenizer = kTokenizers / "small";

// What may stand at --out, for all commands.
class OutputProgramTest : public ProgramTest {
  protected:
    OutputProgramTest() {
        EXPECT_TRUE(write_file_atomic(path("text.txt"), "one two three four five\n").ok());
        EXPECT_TRUE(write_file_atomic(path("text.jsonl"), R"({"text": "one two three"})").ok());
    }

    // Each command's arguments but --out.
    std::vector<std::string> training(std::vector<std::string> more = {}) const {
        std::vector<std::string> arguments = {"train",     "--model", path("model"), "--data", path("data.safetensors"),
                                              "--threads", "1",       "--steps",     "2",      "--global-batch-size",
                                              "2"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return arguments;
    }
    std::vector<std::string> init() const { return {"init", "--config", path("config.json"), "--seed", "2"}; }
    std::vector<std::string> tokenizer() const {
        return {"tokenizer-train", "--input", path("text.txt"), "--vocab-size", "280"};
    }
    std::vector<std::string> tokenizing(const std::string& from = kTokenizer) const {
        return {"tokenize", "--tokenizer", from, "--input", path("text.jsonl"), "--seq-len", "8"};
    }
    std::vector<std::string> import() const { return {"import", "--from", ATOLL_FIXTURES "/torch/single"}; }
    std::vector<std::string> merge() const { return {"merge", "--model", path("model"), "--adapter", path("adapter")}; }
    std::vector<std::vector<std::string>> commands() const {
        return {training(), training({"--lora-rank", "2"}), init(), tokenizer(), tokenizing(), import(), merge()};
    }

    CommandResult into(const std::string& out, std::vector<std::string> arguments,
                       std::vector<std::string> more = {}) const {
        arguments.insert(arguments.end(), {"--out", path(out)});
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run(arguments);
    }
    void expect_refused(const CommandResult& result, const std::string& words) const {
        EXPECT_EQ(result.exit_code, 2) << result.out;
        EXPECT_NE(result.err.find("--out"), std::string::npos) << result.err;
        EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
    }
    // Every file below a directory with its bytes.
    std::map<std::string, std::string> files(const std::string& name) const {
        std::map<std::string, std::string> all;
        for (const auto& entry : fs::recursive_directory_iterator(path(name)))
            if (entry.is_regular_file()) all[entry.path().string()] = read_file(entry.path()).value();
        return all;
    }
};

TEST_F(OutputProgramTest, NoCommandReplacesWhatIsThereUnlessToldTo) {
    ASSERT_EQ(into("adapter", training({"--lora-rank", "2"})).exit_code, 0);
    int number = 0;
    for (const auto& command : commands()) {
        const std::string out = "out" + std::to_string(++number);
        ASSERT_EQ(into(out, command).exit_code, 0) << command[0];
        const auto before = files(out);
        expect_refused(into(out, command), "--overwrite");
        EXPECT_EQ(files(out) == before, true) << command[0];
        const auto replaced = into(out, command, {"--overwrite"});
        EXPECT_EQ(replaced.exit_code, 0) << command[0] << replaced.err;
    }
}

TEST_F(OutputProgramTest, NothingForeignIsReplacedByAnyCommand) {
    ASSERT_EQ(into("adapter", training({"--lora-rank", "2"})).exit_code, 0);
    ASSERT_TRUE(write_file_atomic(path("file"), "mine").ok());
    fs::create_directories(path("notes"));
    ASSERT_TRUE(write_file_atomic(path("notes/notes.txt"), "mine").ok());
    fs::copy(path("model"), path("noted"));
    ASSERT_TRUE(write_file_atomic(path("noted/notes.txt"), "mine").ok());
    for (const auto& command : commands()) {
        expect_refused(into("file", command, {"--overwrite"}), path("file"));
        for (const std::string foreign : {"notes", "noted"}) {
            const auto before = files(foreign);
            expect_refused(into(foreign, command, {"--overwrite"}), path(foreign));
            EXPECT_EQ(files(foreign) == before, true) << command[0];
        }
    }
}

TEST_F(OutputProgramTest, WhatACommandReadsIsNeverReplaced) {
    ASSERT_EQ(into("adapter", training({"--lora-rank", "2"})).exit_code, 0);
    fs::create_directories(path("texts"));
    fs::copy(path("text.txt"), path("texts/text.txt"));
    fs::copy(kTokenizer, path("tokenizer"));
    const auto before = files(".");
    const auto all_stays = [&](const std::string& out, const std::vector<std::string>& command) {
        expect_refused(into(out, command, {"--overwrite"}), "--out");
        EXPECT_EQ(files(".") == before, true) << command[0] << " " << out;
    };
    all_stays("model", training());
    all_stays("model/../model/", training());
    all_stays(".", training());
    all_stays("data.safetensors", training());
    all_stays("adapter", training({"--adapter", path("adapter")}));
    all_stays("model", training({"--val-data", path("model/model.safetensors")}));
    all_stays("model", merge());
    all_stays("adapter", merge());
    all_stays("texts", {"tokenizer-train", "--input", path("texts/text.txt"), "--vocab-size", "280"});
    all_stays("text.jsonl", tokenizing());
    all_stays("tokenizer", tokenizing(path("tokenizer")));
    all_stays("model", {"init", "--config", path("model/config.json"), "--seed", "2"});
    all_stays("model", {"init", "--config", path("config.json"), "--tokenizer", path("model"), "--seed", "2"});
    all_stays("model", {"import", "--from", path("model")});
}

TEST_F(OutputProgramTest, AnotherKindOfResultIsNotMixedIn) {
    ASSERT_EQ(into("adapter", training({"--lora-rank", "2"})).exit_code, 0);
    fs::copy(path("model"), path("old"));
    expect_refused(into("old", training({"--lora-rank", "2"}), {"--overwrite"}), path("old"));
    expect_refused(into("adapter", training(), {"--overwrite"}), path("adapter"));
    expect_refused(into("old", tokenizer(), {"--overwrite"}), path("old"));
    expect_refused(into("old", tokenizing(), {"--overwrite"}), path("old"));
    ASSERT_TRUE(write_file_atomic(path("old/tokenizer.model"), "of the old model").ok());
    ASSERT_EQ(into("old", training(), {"--overwrite"}).exit_code, 0);
    EXPECT_FALSE(fs::exists(path("old/tokenizer.model"))) << "the new model has none";
}

TEST_F(OutputProgramTest, WhatIsThereIsNamedAndNobodyIsToldToRemoveIt) {
    ASSERT_EQ(into("out", training()).exit_code, 0);
    ASSERT_EQ(into("data", tokenizing()).exit_code, 0);
    for (const char* tokenizer : {"small", "gpt2", "opt"}) fs::copy(kTokenizers / tokenizer, path(tokenizer));
    fs::create_directory(path("config"));
    fs::copy(path("config.json"), path("config"));
    const auto before = files(".");
    for (const std::string out : {"small", "gpt2", "opt", "data", "out.state", "config"}) {
        for (const auto& command : {training(), init(), import()}) {
            const auto result = into(out, command, {"--overwrite"});
            expect_refused(result, path(out));
            EXPECT_EQ(result.err.find("remove"), std::string::npos) << result.err;
        }
    }
    EXPECT_EQ(files(".") == before, true);
}

TEST_F(OutputProgramTest, WhatAKilledRunLeftIsNotForeign) {
    fs::create_directories(path("out/.saving.1"));
    ASSERT_TRUE(write_file_atomic(path("out/.model.safetensors.a1B2c3"), "half").ok());
    EXPECT_EQ(into("out", training()).exit_code, 0);
}

TEST_F(OutputProgramTest, AStateIsGivenUpOnlyWhenToldTo) {
    ASSERT_EQ(into("out", training(), {"--time-limit", kAtOnce}).exit_code, 0);
    const auto state = files("out.state");
    ASSERT_EQ(state.size(), 1U);
    const auto again = into("out", training());
    expect_refused(again, "--resume");
    EXPECT_NE(again.err.find("--overwrite"), std::string::npos) << again.err;
    EXPECT_EQ(files("out.state") == state, true);
    EXPECT_EQ(into("out", training(), {"--resume", "--overwrite"}).exit_code, 2);
    EXPECT_EQ(member(into("out", training(), {"--overwrite"}).out, "loss").size(), 2U);
    EXPECT_FALSE(fs::exists(path("out.state/state.safetensors")));
}

TEST_F(OutputProgramTest, ARunThatOverwritesAndStopsGoesOn) {
    fs::copy(path("model"), path("out"));
    ASSERT_EQ(into("out", training(), {"--overwrite", "--time-limit", kAtOnce}).exit_code, 0);
    EXPECT_EQ(weights("out") == weights("model"), true) << "until the new one is complete";
    EXPECT_EQ(member(into("out", training(), {"--resume"}).out, "loss").size(), 1U);
    EXPECT_NE(weights("out") == weights("model"), true);
}

TEST_F(OutputProgramTest, AFinishedRunIsNotRunAgainByResume) {
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--lora-rank", "2"}}) {
        const std::string out = more.empty() ? "out" : "adapters";
        ASSERT_EQ(into(out, training(more)).exit_code, 0);
        const auto before = files(out);
        for (const int ranks : {1, 2}) {
            auto arguments = training(more);
            arguments.insert(arguments.end(), {"--resume", "--out", path(out)});
            const auto again = run(arguments, ranks);
            EXPECT_EQ(again.exit_code, 0) << again.err;
            EXPECT_TRUE(member(again.out, "loss").empty()) << again.out;
            EXPECT_EQ(lines_of(again.out).back()["already_finished"], true);
        }
        EXPECT_EQ(files(out) == before, true);
    }
}

TEST_F(OutputProgramTest, ResumeTakesOnlyTheResultOfThisVeryRunForFinished) {
    fs::copy(path("model"), path("theirs"));
    expect_refused(into("theirs", training(), {"--resume"}), "theirs");
    ASSERT_EQ(into("out", training()).exit_code, 0);
    const auto with = [&](const std::string& flag, const std::string& value) {
        auto arguments = training();
        if (flag == "--steps") return arguments[8] = value, arguments;
        arguments.insert(arguments.end(), {flag, value});
        return arguments;
    };
    for (const auto& [flag, value, words] :
         {std::array<std::string, 3>{"--steps", "3", "--steps 2 (now 3);"}, {"--lr", "0.5", "--lr 0.0003 (now 0.5);"}})
        expect_refused(into("out", with(flag, value), {"--resume"}), words);
    write_data("data.safetensors", 16, {{"input_ids", std::vector<std::int32_t>(32 * 16, 7)}});
    expect_refused(into("out", training(), {"--resume"}), "data.sha256");
    EXPECT_EQ(into("out", training({"--sharding", "full_shard"}), {"--overwrite"}).exit_code, 0);
    EXPECT_EQ(into("out", training(), {"--resume"}).exit_code, 0) << "how it is sharded is no part of what it is";
    expect_refused(into("out", training(), {"--resume", "--save-dtype", "fp32"}), "--save-dtype \"\" (now \"fp32\");");
}

TEST_F(OutputProgramTest, AResultOfOtherWeightsIsNotThatOfThisRun) {
    ASSERT_EQ(into("other", init()).exit_code, 0);
    ASSERT_EQ(into("out", training()).exit_code, 0);
    auto on_other = training();
    on_other[2] = path("other");
    for (const int ranks : {1, 2}) {
        auto arguments = on_other;
        arguments.insert(arguments.end(), {"--resume", "--out", path("out")});
        expect_refused(run(arguments, ranks), "model.sha256 \"");
    }
    ASSERT_EQ(into("first", training({"--lora-rank", "4"})).exit_code, 0);
    ASSERT_EQ(into("second", training({"--lora-rank", "4", "--seed", "3"})).exit_code, 0);
    expect_refused(into("first", training({"--adapter", path("second")}), {"--resume"}), "adapter.sha256 null (now \"");
    const auto from_second = training({"--adapter", path("second")});
    ASSERT_EQ(into("third", from_second).exit_code, 0);
    EXPECT_EQ(into("third", from_second, {"--resume"}).exit_code, 0);
    expect_refused(into("third", training({"--adapter", path("first")}), {"--resume"}), "adapter.sha256 \"");
}

TEST_F(OutputProgramTest, AModelThatWasLeftHalfInPlaceIsNoResult) {
    ASSERT_EQ(into("out", training()).exit_code, 0);
    fs::remove(path("out/config.json"));  // what comes last, and goes first
    const auto result = into("out", training(), {"--resume"});
    EXPECT_EQ(member(result.out, "loss").size(), 2U) << result.err;
    EXPECT_TRUE(fs::exists(path("out/config.json")));
}

TEST_F(OutputProgramTest, OfTheStatesDirectoryOnlyItsOwnFilesGo) {
    fs::create_directory(path("out.state"));
    ASSERT_TRUE(write_file_atomic(path("out.state/notes.txt"), "mine").ok());
    ASSERT_TRUE(write_file_atomic(path("out.state/.state.safetensors.a1B2c3"), "of a killed run").ok());
    ASSERT_EQ(into("out", training(), {"--time-limit", kAtOnce}).exit_code, 0);
    const auto left = files("out.state");
    EXPECT_EQ(left.size(), 2U);
    EXPECT_TRUE(left.contains(path("out.state/notes.txt")) && left.contains(path("out.state/state.safetensors")));
    ASSERT_EQ(into("out", training(), {"--overwrite"}).exit_code, 0);
    EXPECT_EQ(read_file(path("out.state/notes.txt")).value(), "mine");
}

TEST_F(OutputProgramTest, AStateThatCouldNotBeSavedIsToldBeforeTheFirstStep) {
    ASSERT_TRUE(write_file_atomic(path("out.state"), "a file").ok());
    const auto result = into("out", training());
    EXPECT_NE(result.exit_code, 0);
    EXPECT_TRUE(member(result.out, "loss").empty()) << result.out;
    EXPECT_NE(result.err.find("out.state"), std::string::npos) << result.err;
    EXPECT_EQ(read_file(path("out.state")).value(), "a file");
}

// Refused as late as can be: by the state that another run left, and by a step.
TEST_F(OutputProgramTest, ARefusedTrainingLeavesNothing) {
    ASSERT_EQ(into("out", training(), {"--time-limit", kAtOnce}).exit_code, 0);
    const auto state = files("out.state");
    const auto other = into("out", training({"--lr", "0.5"}), {"--resume"});
    EXPECT_EQ(other.exit_code, 2) << other.out;
    EXPECT_NE(other.err.find("--lr 0.0003 (now 0.5)"), std::string::npos) << other.err;
    EXPECT_FALSE(fs::exists(path("out")));
    EXPECT_EQ(files("out.state") == state, true);
    EXPECT_TRUE(fs::exists(path("exit.json"))) << "the run that stopped is still to go on";
    auto diverging = training({"--lr", "1e6", "--max-grad-norm", "0", "--optimizer", "sgd"});
    diverging[8] = "100";  // steps
    const auto diverged = into("high", diverging);
    EXPECT_EQ(diverged.exit_code, 4) << diverged.err;
    EXPECT_FALSE(fs::exists(path("high")) || fs::exists(path("high.state")));
    fs::create_directory(path("mine"));
    EXPECT_EQ(into("mine", diverging).exit_code, 4);
    EXPECT_TRUE(fs::exists(path("mine"))) << "it was there";
}

TEST_F(OutputProgramTest, AReaderThatGoesAwayDoesNotEndATraining) {
    if (ATOLL_SANITIZED) GTEST_SKIP() << kHoldSkipped;
    const auto result = run_under(
        {"env", "LOG=" + path("log"), "CODE=" + path("code"), "sh", "-c", std::string(kRunWhile) + R"(mkfifo "$LOG.pipe"
                                   { hold "$@" >"$LOG.pipe"; echo $? >"$CODE"; } &
                                   head -n 1 <"$LOG.pipe" >"$LOG"
                                   : >"$LOG.go"
                                   wait)",
         "sh"},
        command(training({"--out", path("out")}), 1));
    EXPECT_EQ(read_file(path("code")).value(), "141\n") << "output was lost";
    EXPECT_TRUE(fs::exists(path("out/model.safetensors"))) << result.err;
}

TEST_F(OutputProgramTest, ARunWithoutAStateSaysThatItBeginsAnew) {
    const auto result = into("typo", training(), {"--resume"});
    EXPECT_EQ(member(result.out, "loss").size(), 2U);
    EXPECT_NE(result.err.find("typo.state"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace atl::program
