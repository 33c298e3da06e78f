#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "shared/base/testing/sanitizers.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

// What a run's result needs, and what is left when it cannot be saved.
class SaveProgramTest : public ProgramTest {
  protected:
    // `train`, whose model goes away after the first step.
    CommandResult train_while_the_model_goes(const std::string& out, const std::vector<std::string>& flags) const {
        const std::vector<std::string> script = {"env",
                                                 "LOG=" + path("log"),
                                                 "MODEL=" + path("model"),
                                                 "sh",
                                                 "-c",
                                                 std::string(kRunWhile) + R"(run_while "rm -r $MODEL" "$@")",
                                                 "sh"};
        return run_under(script, command(train_arguments(out, flags), 1));
    }

    // A model in fp32 of which the embedding of a token that no row has is as large as it may become: decay of thrice
    // its amount leaves it finite after one step, and after two no longer.
    void make_bursting_model() const {
        ASSERT_EQ(
            run({"init", "--config", path("config.json"), "--out", path("model"), "--dtype", "fp32", "--overwrite"})
                .exit_code,
            0);
        write_data("data.safetensors", 16, {{"input_ids", std::vector<std::int32_t>(32, 1)}});
        std::string bytes = weights("model");
        std::uint64_t length = 0;
        std::memcpy(&length, bytes.data(), sizeof length);
        const auto header = nlohmann::json::parse(bytes.substr(sizeof length, length));
        const std::uint64_t end = header["model.embed_tokens.weight"]["data_offsets"][1];  // of the last token
        const float large = 5e37F;
        std::memcpy(bytes.data() + sizeof length + length + end - sizeof large, &large, sizeof large);
        ASSERT_TRUE(write_file_atomic(path("model/model.safetensors"), bytes).ok());
    }
};

const std::vector<std::string> kBursting = {"--optimizer", "sgd", "--lr", "0.004", "--weight-decay", "1000"};

std::vector<std::string> bursting(const std::vector<std::string>& flags) {
    std::vector<std::string> all = kBursting;
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
}

TEST_F(SaveProgramTest, WeightsThatAreNotFiniteAreNotKeptAsAState) {
    make_bursting_model();
    for (const int ranks : {1, 2}) {
        for (const char* sharding : {"none", "full_shard"}) {
            const auto failed =
                train("out", bursting({"--steps", "2", "--global-batch-size", "2", "--sharding", sharding}), ranks);
            EXPECT_NE(failed.exit_code, 0) << failed.err;
            EXPECT_NE(failed.err.find("--overwrite"), std::string::npos) << failed.err;
            EXPECT_EQ(failed.err.find("--resume"), std::string::npos) << failed.err;
            ASSERT_FALSE(lines_of(failed.out).empty());
            EXPECT_EQ(lines_of(failed.out).back()["resumable"], false);
            EXPECT_FALSE(std::filesystem::exists(path("out.state/state.safetensors")));
        }
    }
}

TEST_F(SaveProgramTest, WeightsThatAreNotFiniteDoNotReplaceTheLastState) {
    make_bursting_model();
    const auto failed = train("out", bursting({"--steps", "3", "--save-every", "1"}));
    EXPECT_NE(failed.exit_code, 0);
    EXPECT_NE(failed.err.find("step 2"), std::string::npos) << failed.err;
    EXPECT_NE(failed.err.find("--overwrite"), std::string::npos) << failed.err;
    const auto resumed = train("out", bursting({"--steps", "3", "--resume", "--time-limit", kAtOnce}));
    EXPECT_NE(resumed.err.find("step 1 of 3"), std::string::npos) << resumed.err;
}

// Their weights are masters, which fp32 can hold and fp16, which the model computes with, cannot.
TEST_F(SaveProgramTest, WeightsBeyondThePrecisionAreNotKeptAsAState) {
    const auto failed = train(
        "out", {"--steps", "1", "--precision", "fp16", "--optimizer", "sgd", "--lr", "1e6", "--max-grad-norm", "0"});
    EXPECT_NE(failed.exit_code, 0);
    EXPECT_NE(failed.err.find("--overwrite"), std::string::npos) << failed.err;
    EXPECT_FALSE(std::filesystem::exists(path("out.state/state.safetensors")));
}

TEST_F(SaveProgramTest, TheModelMayGoOnceARunHasBegun) {
    if (ATOLL_SANITIZED) GTEST_SKIP() << kHoldSkipped;
    ASSERT_TRUE(write_file_atomic(path("model/merges.txt"), "of the base").ok());
    for (const std::vector<std::string>& flags :
         {std::vector<std::string>{"--steps", "3"}, {"--steps", "3", "--lora-rank", "2"}}) {
        const bool adapters = flags.size() > 2;
        std::filesystem::copy(path("model"), path("kept"), std::filesystem::copy_options::recursive);
        ASSERT_EQ(train("whole", flags).exit_code, 0);
        const auto result = train_while_the_model_goes("out", flags);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_FALSE(std::filesystem::exists(path("model")));
        const std::string weights = adapters ? "/adapter_model.safetensors" : "/model.safetensors";
        EXPECT_EQ(read_file(path("out") + weights).value() == read_file(path("whole") + weights).value(), true);
        EXPECT_EQ(std::filesystem::exists(path("out/merges.txt")), !adapters);
        std::filesystem::rename(path("kept"), path("model"));
        for (const char* out : {"out", "whole"}) std::filesystem::remove_all(path(out));
    }
}

TEST_F(SaveProgramTest, AModelThatCannotBeSavedIsKeptAsAState) {
    for (const int ranks : {1, 2}) {
        // The step makes weights that fp16, the model's format, does not have.
        const std::vector<std::string> flags = {"--steps", "1",   "--global-batch-size", "2", "--optimizer", "sgd",
                                                "--lr",    "1e6", "--max-grad-norm",     "0"};
        auto wide = flags;
        wide.insert(wide.end(), {"--save-dtype", "fp32"});
        const auto whole = train("whole", wide, ranks);
        const auto failed = train("out", flags, ranks);
        EXPECT_EQ(failed.exit_code, 2) << failed.err;
        EXPECT_NE(failed.err.find("--save-dtype"), std::string::npos) << failed.err;
        EXPECT_EQ(lines_of(failed.out).back()["resumable"], true);

        wide.emplace_back("--resume");
        const auto saved = train("out", wide, ranks);
        EXPECT_EQ(saved.exit_code, 0) << saved.err;
        EXPECT_EQ(lines_of(saved.out).size(), 1U) << "no step is made again";
        EXPECT_EQ(lines_of(saved.out).back()["final_loss"], lines_of(whole.out).back()["final_loss"]);
        EXPECT_EQ(weights("out") == weights("whole"), true);
        std::filesystem::remove_all(path("out"));
    }
}

// By the largest rank's peak: after the second step, then after the state and the third step, then after the model.
TEST_F(SaveProgramTest, FullShardSavesWithoutEvenOneTableWhole) {
    ATOLL_SKIP_IF_SANITIZED();
    constexpr double kTableBytes = 8000 * 256 * 4;  // of the embedding, and of the head
    make_wide_model("model");
    const auto result =
        train("out", {"--steps", "3", "--save-every", "2", "--global-batch-size", "4", "--sharding", "full_shard"}, 4);
    const auto lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 4U) << result.err;
    const auto peak_bytes = [&](std::size_t line) { return lines[line]["peak_bytes"].get<double>(); };
    EXPECT_LT(peak_bytes(2) - peak_bytes(1), kTableBytes) << "the state";
    EXPECT_LT(peak_bytes(3) - peak_bytes(1), kTableBytes) << "the model";
}

// Runs of a script on a file system of its own in a mount namespace of its own.
class DiskTest : public ProgramTest {
  protected:
    // $DISK is a file system of 64 MiB, $WORK a directory on another one, from which it runs, $OLD the fixture's model,
    // "$@" a training of 5 steps that lacks --out. The script ends with the training's exit code. A kernel that forbids
    // such a mount skips the test.
    void expect_failure(const std::string& script, const std::vector<std::string>& words) const {
        static constexpr const char* kBegin =
            R"sh(mount -t tmpfs -o size=64m tmpfs "$DISK" || exit 77
            cd "$WORK"
            )sh";
        if (ATOLL_SANITIZED && script.find("run_while") != std::string::npos) GTEST_SKIP() << kHoldSkipped;
        for (const char* name : {"disk", "work"}) std::filesystem::create_directory(path(name));
        for (const int ranks : {1, 2}) {
            const auto training = command({"train", "--model", path("model"), "--data", path("data.safetensors"),
                                           "--threads", "1", "--steps", "5", "--global-batch-size", "2"},
                                          ranks);
            const auto result = run_under(
                {"env", "DISK=" + path("disk"), "WORK=" + path("work"), "OLD=" + path("model"), "LOG=" + path("log"),
                 "unshare", "-rm", "sh", "-c", std::string(kRunWhile) + kBegin + script, "sh"},
                training);
            if (result.exit_code == 77 || result.err.find("unshare:") != std::string::npos)
                GTEST_SKIP() << "no mount namespace here: " << result.err;
            EXPECT_EQ(result.exit_code, 1) << result.err;
            for (const std::string& word : words) EXPECT_NE(result.err.find(word), std::string::npos) << result.err;
        }
    }
};

TEST_F(DiskTest, WhatHasNoRoomIsNotBegun) {
    expect_failure(R"sh(mount -o remount,size=400k "$DISK"
        "$@" --out "$DISK/out" --save-every 1 >"$LOG"; code=$?
        [ -s "$LOG" ] && exit 4
        [ -z "$(ls -A "$DISK")" ] || exit 5
        exit $code)sh",
                   {" free, the run's result and its states need "});
}

// What another run left is given up once nothing is left to be refused.
TEST_F(DiskTest, WhatIsRefusedForRoomGivesNothingUp) {
    for (const char* const way : {"--resume", "--overwrite"}) {
        expect_failure(std::string(R"sh("$@" --out "$DISK/out" --time-limit 0.000001 >"$LOG" || exit 3
            sums() { cd "$DISK" && sha256sum exit.json out.state/*; }
            before=$(sums)
            head -c 64m /dev/zero >"$DISK/others" 2>"$LOG"
            truncate -s -64k "$DISK/others"
            "$@" --out "$DISK/out" --save-every 2 )sh") +
                           way + R"sh(; code=$?
            [ "$before" = "$(sums)" ] || exit 4
            exit $code)sh",
                       {" free, the run's result and its states need "});
    }
}

// Neither the new model nor, in its place, the state has room on a disk that holds the old model.
TEST_F(DiskTest, TheOldModelStaysWhenTheDiskIsFull) {
    const std::string small = std::to_string(weights("model").size() * 3 / 2);
    expect_failure(R"sh(cp -r "$OLD" "$DISK/out" || exit 3
        run_while "mount -o remount,size=)sh" +
                       small + R"sh( $DISK" "$@" --out "$DISK/out" --overwrite; code=$?
        cmp "$OLD/model.safetensors" "$DISK/out/model.safetensors" || exit 4
        cmp "$OLD/config.json" "$DISK/out/config.json" || exit 5
        [ -z "$(ls -A "$DISK/out.state")" ] || exit 6
        [ -f "$WORK"/out-saved-*.state/state.safetensors ] || exit 7
        rm -r "$WORK"/out-saved-*
        exit $code)sh",
                   {"No space left on device", "the training is done and its state saved in "});
}

TEST_F(DiskTest, TheLastStateStaysWhenTheDiskIsFull) {
    expect_failure(R"sh("$@" --out "$DISK/out" --time-limit 0.000001 >"$LOG" || exit 3
        sum=$(cd "$DISK/out.state" && sha256sum $(ls -A))
        run_while "mount -o remount,size=400k $DISK" "$@" --out "$DISK/out" --resume --save-every 3; code=$?
        [ "$sum" = "$(cd "$DISK/out.state" && sha256sum $(ls -A))" ] || exit 4
        [ -z "$(ls -A "$DISK/out")" ] || exit 5
        [ -f "$WORK"/out-saved-*.state/state.safetensors ] || exit 6
        rm -r "$WORK"/out-saved-*
        exit $code)sh",
                   {"No space left on device", "the state of step 3 is in "});
}

TEST_F(DiskTest, DataThatBecomesShorterEndsTheRun) {
    expect_failure(R"sh(data=$(dirname "$OLD")/data.safetensors
        cp "$data" "$DISK/copy"
        run_while "truncate -s 100 $data" "$@" --out "$DISK/out"; code=$?
        cp "$DISK/copy" "$data"
        exit $code)sh",
                   {"has become shorter"});
}

}  // namespace
}  // namespace atl::program
