#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "shared/digest/digest.h"
#include "shared/safetensors/safetensors.h"
#include "trainer/program/testing/running_program_fixture.h"

namespace atl::program {
namespace {

class ResumeTest : public RunningProgramTest {};

TEST_F(ResumeTest, AStoppedRunGoesOnBitForBit) {
    const std::vector<std::string> flags = {"--steps",    "6",      "--global-batch-size", "4",
                                            "--schedule", "cosine", "--save-dtype",        "fp32"};
    auto stopping = flags;
    stopping.insert(stopping.end(), {"--time-limit", kAtOnce});
    auto resuming = flags;
    resuming.emplace_back("--resume");
    auto resuming_once = stopping;
    resuming_once.emplace_back("--resume");
    const auto whole = train("whole", flags);
    const auto first = train("out", stopping);
    EXPECT_EQ(first.exit_code, 0) << first.err;
    EXPECT_EQ(lines_of(first.out).back()["resumable"], true);
    EXPECT_EQ(lines_of(first.out).back()["steps"], 1);
    EXPECT_NE(first.err.find("stopped by --time-limit after step 1 of 6; its state is in " + path("out.state")),
              std::string::npos)
        << first.err;
    EXPECT_TRUE(std::filesystem::exists(path("out.state/state.safetensors")));
    EXPECT_FALSE(std::filesystem::exists(path("out/model.safetensors")));
    const auto too_early = run({"eval", "--model", path("out"), "--data", path("data.safetensors")});
    EXPECT_EQ(too_early.exit_code, 2);
    EXPECT_NE(too_early.err.find(path("out.state")), std::string::npos) << too_early.err;
    const auto exit_file = read_file(path("exit.json"));
    ASSERT_TRUE(exit_file.ok());
    EXPECT_EQ(nlohmann::json::parse(*exit_file)["resumable"], true);
    EXPECT_EQ(nlohmann::json::parse(*exit_file)["exit_code"], 0);
    EXPECT_EQ(nlohmann::json::parse(*exit_file)["out"], "out");
    ASSERT_EQ(train("other", {"--steps", "1"}).exit_code, 0);
    EXPECT_EQ(read_file(path("exit.json")).value(), *exit_file) << "it tells of another run";

    const auto second = train("out", resuming_once);
    EXPECT_EQ(lines_of(second.out).back()["steps"], 2) << second.err;
    const auto last = train("out", resuming);
    EXPECT_EQ(member(last.out, "loss").size(), 4U) << last.err;
    EXPECT_EQ(member(last.out, "loss").back(), member(whole.out, "loss").back());
    EXPECT_NE(last.err.find("step 2 of 6"), std::string::npos) << last.err;
    const auto summary = lines_of(last.out).back();
    const double rate = summary["tokens_per_s"], wall_s = summary["wall_s"];
    EXPECT_NEAR(rate * wall_s, 6 * 4 * 16, 1e-6) << "both of all three processes";
    EXPECT_EQ(lines_of(last.out).back()["tokens"], lines_of(whole.out).back()["tokens"]);
    EXPECT_EQ(lines_of(last.out).back()["loss"], lines_of(whole.out).back()["loss"]);
    EXPECT_EQ(weights("out") == weights("whole"), true);
    EXPECT_FALSE(std::filesystem::exists(path("out.state/state.safetensors")));
    EXPECT_FALSE(std::filesystem::exists(path("exit.json"))) << "it told of the run before";
}

TEST_F(ResumeTest, ARunGoesOnAtAnotherNumberOfRanksAndAnotherSharding) {
    const std::vector<std::string> flags = {"--steps", "5", "--global-batch-size", "4"};
    const auto whole = member(train("whole", flags).out, "loss");
    auto stopping = flags;
    stopping.insert(stopping.end(), {"--time-limit", kAtOnce, "--sharding", "full_shard"});
    ASSERT_EQ(train("out", stopping, 2).exit_code, 0);
    auto resuming = flags;
    resuming.insert(resuming.end(), {"--resume", "--sharding", "shard_optimizer"});
    const auto rest = member(train("out", resuming, 4).out, "loss");
    ASSERT_EQ(rest.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(rest[i], whole[i + 1], 1e-5);
}

TEST_F(ResumeTest, ADeterministicRunGoesOnBitForBitAtAnotherNumberOfRanks) {
    for (const std::string optimizer : {"adamw", "muon"}) {
        SCOPED_TRACE(optimizer);
        const std::vector<std::string> flags = {"--steps",     "4",      "--global-batch-size", "4", "--deterministic",
                                                "--optimizer", optimizer};
        const auto whole = member(train("whole_" + optimizer, flags).out, "loss");
        auto stopping = flags;
        stopping.insert(stopping.end(), {"--time-limit", kAtOnce, "--sharding", "full_shard"});
        ASSERT_EQ(train("out_" + optimizer, stopping, 2).exit_code, 0);
        auto resuming = flags;
        resuming.insert(resuming.end(), {"--resume", "--sharding", "hybrid_shard_zero2", "--shard-group", "2"});
        const auto rest = member(train("out_" + optimizer, resuming, 4).out, "loss");
        EXPECT_EQ(rest, (std::vector<double>{whole.begin() + 1, whole.end()}));
        EXPECT_EQ(weights("out_" + optimizer) == weights("whole_" + optimizer), true);
    }
}

TEST_F(ResumeTest, OtherSettingsDoNotGoOn) {
    ASSERT_EQ(train("out", {"--steps", "5", "--time-limit", kAtOnce}).exit_code, 0);
    const auto other = train("out", {"--steps", "6", "--resume", "--lr", "0.5"});
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_NE(other.err.find("--lr 0.0003 (now 0.5), --steps 5 (now 6)"), std::string::npos) << other.err;
}

TEST_F(ResumeTest, OtherSumsDoNotGoOn) {
    ASSERT_EQ(train("out", {"--steps", "5", "--deterministic", "--time-limit", kAtOnce}).exit_code, 0);
    const auto other = train("out", {"--steps", "5", "--resume"});
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_NE(other.err.find("--deterministic true (now false)"), std::string::npos) << other.err;
}

TEST_F(ResumeTest, OtherKernelsAreToldAndADeterministicRunDoesNotGoOnWithThem) {
    if (lines_of(run({"report"}).out)[0]["cpu"]["instructions"].size() == 1) GTEST_SKIP() << "there are no others";
    const std::string words = ", whose sums differ a little";
    for (const int ranks : {1, 2}) {
        for (const bool deterministic : {false, true}) {
            std::vector<std::string> flags = {"--steps", "3", "--global-batch-size", "4"};
            if (deterministic) flags.emplace_back("--deterministic");
            auto stopping = flags;
            stopping.insert(stopping.end(), {"--time-limit", kAtOnce});
            ASSERT_EQ(train("out", stopping, ranks).exit_code, 0);
            flags.emplace_back("--resume");
            const auto other =
                run_under({"env", "ATOLL_INSTRUCTION_SET=baseline"}, command(train_arguments("out", flags), ranks));
            EXPECT_EQ(other.exit_code, deterministic ? 2 : 0) << other.err;
            EXPECT_NE(other.err.find(words), std::string::npos) << other.err;
            EXPECT_EQ(other.err.find(words), other.err.rfind(words)) << other.err;
            if (!deterministic) continue;
            EXPECT_EQ(train("out", flags, ranks).err.find(words), std::string::npos);
        }
    }
}

TEST_F(ResumeTest, OtherRowsOfTheSameNumberDoNotGoOn) {
    ASSERT_EQ(train("out", {"--steps", "5", "--time-limit", kAtOnce}).exit_code, 0);
    write_data("data.safetensors", 16, {{"input_ids", std::vector<std::int32_t>(32 * 16, 7)}});
    for (const int ranks : {1, 2}) {
        const auto other = train("out", {"--steps", "5", "--resume"}, ranks);
        EXPECT_EQ(other.exit_code, 2);
        EXPECT_NE(other.err.find("data.sha256 \""), std::string::npos) << other.err;
    }
}

TEST_F(ResumeTest, AModelOfOtherMathematicsDoesNotGoOn) {
    ASSERT_EQ(train("out", {"--steps", "5", "--time-limit", kAtOnce}).exit_code, 0);
    const std::string config = read_file(path("model/config.json")).value();
    for (const auto& [key, value] :
         {std::pair<std::string, nlohmann::json>{"rope_theta", 500.0}, {"max_position_embeddings", 64}}) {
        auto changed = nlohmann::json::parse(config);
        changed[key] = value;
        ASSERT_TRUE(write_file_atomic(path("model/config.json"), changed.dump()).ok());
        const auto other = train("out", {"--steps", "5", "--resume"});
        EXPECT_EQ(other.exit_code, 2);
        EXPECT_NE(other.err.find("model." + key + " "), std::string::npos) << other.err;
    }
}

TEST_F(ResumeTest, OtherWeightsOfTheModelDoNotGoOn) {
    ASSERT_EQ(train("out", {"--steps", "5", "--time-limit", kAtOnce}).exit_code, 0);
    std::filesystem::rename(path("model"), path("first"));
    ASSERT_EQ(run({"init", "--config", path("config.json"), "--out", path("model"), "--seed", "2"}).exit_code, 0);
    const auto other = train("out", {"--steps", "5", "--resume"});
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_NE(other.err.find("model.sha256 \""), std::string::npos) << other.err;
}

TEST_F(ResumeTest, AStateGoesOnToBeSavedInAnotherFormat) {
    ASSERT_EQ(train("out", {"--steps", "2", "--time-limit", kAtOnce}).exit_code, 0);
    const auto rest = train("out", {"--steps", "2", "--resume", "--save-dtype", "fp32"});
    EXPECT_EQ(member(rest.out, "loss").size(), 1U) << rest.err;
}

TEST_F(ResumeTest, WithoutAStateARunBeginsAnew) {
    EXPECT_EQ(member(train("out", {"--steps", "2", "--resume"}).out, "loss").size(), 2U);
}

TEST_F(ResumeTest, AStateThatIsTooShortIsNamed) {
    ASSERT_EQ(train("out", {"--steps", "5", "--time-limit", kAtOnce}).exit_code, 0);
    std::filesystem::resize_file(path("out.state/state.safetensors"), 9000);
    const auto result = train("out", {"--steps", "5", "--resume"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("state.safetensors"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("--overwrite"), std::string::npos) << result.err;
}

TEST_F(ResumeTest, AnyByteOfAStateThatChangedIsFound) {
    ASSERT_EQ(train("out", {"--steps", "5", "--global-batch-size", "2", "--time-limit", kAtOnce}).exit_code, 0);
    const std::string file = path("out.state/state.safetensors");
    const std::string whole = read_file(file).value();
    const auto header = safetensors::parse_header(
        whole.substr(8, safetensors::header_length(whole.substr(0, 8), whole.size()).value()), whole.size());
    ASSERT_TRUE(header.ok());
    for (const std::uint64_t at : {header->data_begin, header->data_begin + header->data_size / 2, whole.size() - 1}) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 1);
        ASSERT_TRUE(write_file_atomic(file, damaged).ok());
        for (const int ranks : {1, 2}) {
            const auto result = train("out", {"--steps", "5", "--global-batch-size", "2", "--resume"}, ranks);
            EXPECT_EQ(result.exit_code, 2) << at;
            EXPECT_NE(result.err.find("state.safetensors"), std::string::npos) << result.err;
        }
    }
    for (std::uint64_t at = 0; at < header->data_begin; at += 173) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 1);
        ASSERT_TRUE(write_file_atomic(file, damaged).ok());
        const auto result = train("out", {"--steps", "5", "--global-batch-size", "2", "--resume"});
        EXPECT_EQ(result.exit_code, 2) << at;
        EXPECT_NE(result.err.find("state.safetensors"), std::string::npos) << result.err;
    }
    ASSERT_TRUE(write_file_atomic(file, whole).ok());
    EXPECT_EQ(train("out", {"--steps", "5", "--global-batch-size", "2", "--resume"}).exit_code, 0);
}

// Each step takes longer than that.
TEST_F(ResumeTest, AStateIsSavedByTimeToo) {
    for (const int ranks : {1, 2}) {
        const pid_t child = start_endless(ranks, {"--save-interval", "0.000001", "--overwrite"});
        EXPECT_TRUE(wait_for(path("out.state/state.safetensors"), "tokens")) << ranks;
        kill(child, SIGTERM);
        wait_exit(child);
    }
}

TEST_F(ResumeTest, AResultIsKnownAsFinishedHoweverTheRunEnded) {
    ASSERT_EQ(mkfifo(path("output").c_str(), 0600), 0);
    const UniqueFd full(::open(path("output").c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    const std::string page(4096, '\n');
    while (::write(full.get(), page.data(), page.size()) > 0) {
    }
    std::vector<std::string> arguments = {"sh", "-c", "exec \"$@\" > " + path("output"), "sh"};
    const auto training = command(train_arguments("out", {"--steps", "0"}), 1);
    arguments.insert(arguments.end(), training.begin(), training.end());
    const auto child = start_daemon(arguments, {path("log"), {}, {}});
    ASSERT_TRUE(child.ok());
    ASSERT_TRUE(wait_for(path("out/config.json"), "{")) << "then its summary waits for a reader";
    kill(*child, SIGKILL);
    wait_exit(*child);
    const auto again = train("out", {"--steps", "0", "--resume"});
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(lines_of(again.out).back()["already_finished"], true);
}

// What the file says of the run, where it says "120 tokens".
TEST_F(ResumeTest, WhatAStateSaysOfTheRunIsReadStrictly) {
    ASSERT_EQ(train("out", {"--steps", "5", "--global-batch-size", "8", "--time-limit", kAtOnce}).exit_code, 0);
    const std::string file = path("out.state/state.safetensors");
    const std::string whole = read_file(file).value();
    const std::string tokens = "tokens\\\":", digits = "120";
    const std::size_t at = whole.find(tokens + digits) + tokens.size();
    ASSERT_EQ(whole.substr(at, digits.size()), digits);
    for (const bool is_signed : {false, true}) {  // by whom changed it
        for (const std::string other : {"1.2", "-12", "[1]", "121"}) {
            std::string changed = whole;
            changed.replace(at, other.size(), other);
            const auto length = safetensors::header_length(changed.substr(0, 8), changed.size()).value();
            const auto header = safetensors::parse_header(changed.substr(8, length), changed.size());
            const std::string digest = digest::sha256(nlohmann::json(header->metadata).dump());
            if (is_signed) changed.replace(changed.size() - digest.size(), digest.size(), digest);
            ASSERT_TRUE(write_file_atomic(file, changed).ok());
            const auto result = train("out", {"--steps", "5", "--global-batch-size", "8", "--resume"});
            const bool goes_on = is_signed && other == "121";
            EXPECT_EQ(result.exit_code, goes_on ? 0 : 2) << other << result.err;
            EXPECT_EQ(result.err.find("state.safetensors") != std::string::npos, !goes_on) << other << result.err;
        }
    }
}

TEST_F(ResumeTest, AStateOfAnotherVersionIsRefusedWithTheWayOn) {
    ASSERT_EQ(train("out", {"--steps", "5", "--time-limit", kAtOnce}).exit_code, 0);
    const std::string file = path("out.state/state.safetensors"), schema = "\"schema\":\"";
    std::string other = read_file(file).value();
    other[other.find(schema) + schema.size()] = '2';
    ASSERT_TRUE(write_file_atomic(file, other).ok());
    const auto result = train("out", {"--steps", "5", "--resume"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("state.safetensors"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("--overwrite"), std::string::npos) << result.err;
}

TEST_F(ResumeTest, AStateThatCannotBeLookedForIsNotAMissingOne) {
    std::filesystem::create_directory(path("out.state"));
    std::filesystem::create_symlink("state.safetensors", path("out.state/state.safetensors"));  // to itself
    const auto result = train("out", {"--steps", "2", "--resume"});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.err.find("out.state/state.safetensors"), std::string::npos) << result.err;
}

// `train` that may write no file beyond 32 kB, as on a full disk.
class FullDiskTest : public RunningProgramTest {
  protected:
    CommandResult train_without_room(const std::vector<std::string>& flags) const {
        return run_under({"sh", "-c", "ulimit -f 64; exec \"$@\"", "sh"}, command(train_arguments("out", flags), 1));
    }
    // How many files there are, hidden ones too.
    std::ptrdiff_t files_in(const std::string& name) const {
        return std::distance(std::filesystem::directory_iterator(path(name)), std::filesystem::directory_iterator());
    }
};

TEST_F(FullDiskTest, TheLastGoodStateStaysWhenTheNextDoesNotFit) {
    ASSERT_EQ(train("out", {"--steps", "5", "--time-limit", kAtOnce}).exit_code, 0);
    const auto good = read_file(path("out.state/state.safetensors"));
    ASSERT_TRUE(good.ok());
    const auto result = train_without_room({"--steps", "5", "--save-every", "1", "--resume"});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_NE(result.err.find("out.state/state.safetensors"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("step 1"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("--resume"), std::string::npos) << result.err;
    EXPECT_EQ(read_file(path("out.state/state.safetensors")).value() == *good, true);
    EXPECT_EQ(files_in("out.state"), 1);
    EXPECT_EQ(member(train("out", {"--steps", "5", "--resume"}).out, "loss").size(), 4U);
}

TEST_F(FullDiskTest, WithoutAnyStateAllStepsAreLostAndTheMessageSaysSo) {
    const auto result = train_without_room({"--steps", "5", "--save-every", "2"});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_NE(result.err.find("out.state"), std::string::npos) << result.err;
}

TEST_F(FullDiskTest, TheOldModelStaysWhenTheNewOneDoesNotFit) {
    ASSERT_EQ(train("out", {"--steps", "1", "--save-dtype", "fp32"}).exit_code, 0);
    const std::string good = weights("out");
    const auto files = files_in("out");
    const auto result = train_without_room({"--steps", "2", "--save-dtype", "fp32"});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_NE(result.err.find("model.safetensors"), std::string::npos) << result.err;
    EXPECT_EQ(weights("out") == good, true);
    EXPECT_EQ(files_in("out"), files);
}

TEST_F(ResumeTest, SigtermSavesAndEndsWell) {
    const pid_t child = start_endless(1);
    kill(child, SIGTERM);
    const int status = wait_exit(child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_TRUE(wait_for(path("log"), "\"resumable\":true"));
    EXPECT_TRUE(std::filesystem::exists(path("out.state/state.safetensors")));
}

TEST_F(ResumeTest, ARecordThatRank0CannotWriteIsTheOutcomeOfEveryRank) {
    auto arguments = command(train_arguments("out", {"--steps", "100000000", "--global-batch-size", "4"}), 2);
    const std::vector<std::string> keep_code = {"sh", "-c", R"(trap : USR1; "$@"; echo $? >>"$0")", path("codes")};
    arguments.insert(arguments.begin() + 2, keep_code.begin(), keep_code.end());
    const auto started = start_daemon(arguments, {path("log"), {}, {}});
    ASSERT_TRUE(started.ok());
    ASSERT_TRUE(wait_for(path("log"), "\"step\":1,"));
    std::filesystem::create_directories(path("exit.json/in the way"));
    kill(*started, SIGUSR1);
    wait_exit(*started);
    EXPECT_TRUE(wait_for(path("log"), path("exit.json")));
    EXPECT_EQ(read_file(path("codes")).value(), "1\n1\n");
}

// Steps of a second: oneDNN's products keep their stack on the heap, where no handler may run.
TEST_F(ResumeTest, SignalsDuringProductsHarmNothing) {
    make_wide_model("wide");
    const auto child = start_daemon(
        command({"train", "--model", path("wide"), "--data", path("data.safetensors"), "--out", path("out"), "--steps",
                 "1000", "--global-batch-size", "256", "--batch-size", "8", "--threads", "2"},
                1),
        {path("log"), {}, {}});
    ASSERT_TRUE(child.ok());
    ASSERT_TRUE(wait_for(path("log"), "\"step\":1,"));
    for (int sent = 0; sent < 500; ++sent) {
        kill(*child, sent % 2 == 0 ? SIGTERM : SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    const int status = wait_exit(*child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << read_file(path("log")).value();
    EXPECT_TRUE(wait_for(path("log"), "\"resumable\":true"));
}

TEST_F(ResumeTest, SigtermDuringTheStartEndsWellToo) {
    std::filesystem::create_directory(path("data"));
    std::filesystem::copy(path("data.safetensors"), path("data/data.safetensors"));
    ASSERT_EQ(mkfifo(path("data/data.json").c_str(), 0600), 0);
    const auto child = start_daemon(command({"train", "--model", path("model"), "--data", path("data"), "--out",
                                             path("out"), "--steps", "100000000", "--threads", "1"},
                                            1),
                                    {path("log"), {}, {}});
    ASSERT_TRUE(child.ok());
    const std::string fingerprint = digest::sha256_file(path("data.safetensors")).value();
    {
        std::ofstream data(path("data/data.json"));  // opens when the other side does: the run reads its data
        kill(*child, SIGTERM);
        data << nlohmann::json{
            {"schema", 1},   {"tokenizer_sha256", ""}, {"fingerprint", fingerprint}, {"documents", 1}, {"rows", 32},
            {"seq_len", 16}, {"tokens", 512}};
    }
    const int status = wait_exit(*child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << read_file(path("log")).value();
    EXPECT_TRUE(wait_for(path("log"), "\"resumable\":true"));
    EXPECT_EQ(read_file(path("log")).value().find("\"step\":"), std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(path("out.state/state.safetensors")));
}

TEST_F(ResumeTest, ASignalAfterTheSummaryIsTooLateToHarm) {
    const auto child = start_daemon(command({"train", "--model", path("model"), "--data", path("data.safetensors"),
                                             "--out", path("out"), "--steps", "2", "--threads", "1"},
                                            2),
                                    {path("log"), {}, {}});
    ASSERT_TRUE(child.ok());
    ASSERT_TRUE(wait_for(path("log"), "\"summary\":true"));
    kill(*child, SIGUSR1);  // mpirun passes it on
    const int status = wait_exit(*child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << read_file(path("log")).value();
}

TEST_F(ResumeTest, AStateIsGoneOnceARunThatOverwritesItHasBegun) {
    ASSERT_EQ(train("out", {"--steps", "5", "--time-limit", kAtOnce}).exit_code, 0);
    const pid_t child = start_endless(1, {"--overwrite"});
    EXPECT_FALSE(std::filesystem::exists(path("out.state/state.safetensors")))
        << "--resume would go on with the run before";
    kill(child, SIGKILL);
    wait_exit(child);
}

// Rows for a validation that takes minutes.
class LongValidationTest : public RunningProgramTest {
  protected:
    LongValidationTest() {
        write_data("long.safetensors", 16, {{"input_ids", std::vector<std::int32_t>(16 * 400'000, 7)}});
    }
    std::vector<std::string> flags(const std::string& steps) const {
        return {"--val-data", path("long.safetensors"), "--eval-every", "1", "--steps", steps};
    }
};

TEST_F(LongValidationTest, TheTimeLimitEndsAValidation) {
    auto stopping = flags("5");
    stopping.insert(stopping.end(), {"--time-limit", "1"});
    const auto result = train("out", stopping);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(lines_of(result.out).back()["resumable"], true);
    EXPECT_TRUE(member(result.out, "perplexity").empty()) << "it was not waited for";
    EXPECT_NE(result.err.find("step 1"), std::string::npos) << result.err;
    EXPECT_EQ(member(train("out", {"--steps", "5", "--resume"}).out, "loss").size(), 4U);
}

TEST_F(LongValidationTest, ASignalEndsTheLastValidationAndTheModelIsSaved) {
    for (const int ranks : {1, 2}) {
        const std::string out = "out" + std::to_string(ranks);
        std::vector<std::string> arguments = {
            "train",     "--model", path("model"),         "--data", path("data.safetensors"),
            "--threads", "1",       "--global-batch-size", "2",      "--out",
            path(out)};
        const auto more = flags("1");
        arguments.insert(arguments.end(), more.begin(), more.end());
        const auto started = start_daemon(command(arguments, ranks), {path(out + ".log"), {}, {}});
        ASSERT_TRUE(started.ok());
        ASSERT_TRUE(wait_for(path(out + ".log"), "\"step\":1,"));
        kill(*started, SIGUSR1);
        const int status = wait_exit(*started);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        EXPECT_TRUE(wait_for(path(out + ".log"), "\"resumable\":false"));
        EXPECT_TRUE(wait_for(path(out + ".log"), "is left out"));
        EXPECT_TRUE(std::filesystem::exists(path(out) + "/model.safetensors"));
    }
}

struct ProcessState {
    char state = 'X';  // as in /proc/PID/stat; X: there is no such process
    pid_t parent = 0;
};

ProcessState state_of(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    long id = 0;
    std::string name;
    ProcessState found;
    file >> id >> name >> found.state >> found.parent;
    return found;
}

std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> children;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const auto process = static_cast<pid_t>(std::atol(entry.path().filename().c_str()));
        if (process > 0 && state_of(process).parent == parent) children.push_back(process);
    }
    return children;
}

// Dead, whether or not somebody has collected it; false after some minutes.
bool wait_dead(pid_t process) {
    for (const auto until = std::chrono::steady_clock::now() + kPatience; std::chrono::steady_clock::now() < until;) {
        const char state = state_of(process).state;
        if (state == 'X' || state == 'Z') return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
}

// The number that mpirun gave a process.
std::string rank_of(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/environ");
    const std::string name = "OMPI_COMM_WORLD_RANK=";
    for (std::string entry; std::getline(file, entry, '\0');) {
        if (entry.starts_with(name)) return entry.substr(name.size());
    }
    return "unknown";
}

TEST_F(ResumeTest, ARankThatDiesEndsTheOthersAndIsNamed) {
    for (const int count : {2, 4}) {
        const pid_t mpirun = start_endless(count);  // the script becomes mpirun itself
        const auto ranks = children_of(mpirun);
        ASSERT_EQ(ranks.size(), static_cast<std::size_t>(count));
        const std::string victim = rank_of(ranks[1]);
        kill(ranks[1], SIGKILL);
        const int status = wait_exit(mpirun);
        EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        for (const pid_t rank : ranks) EXPECT_TRUE(wait_dead(rank)) << rank;
        EXPECT_TRUE(wait_for(path("log"), "process rank " + victim));
        EXPECT_TRUE(wait_for(path("log"), "signal 9"));
    }
}

TEST_F(ResumeTest, ARankThatStandsStillEndsTheRunAndIsNamed) {
    for (const char* const sharding : {"none", "full_shard"}) {
        const pid_t mpirun = start_endless(4, {"--sharding", sharding, "--collective-timeout", "3", "--overwrite"});
        const auto ranks = children_of(mpirun);
        ASSERT_EQ(ranks.size(), 4U);
        const std::string victim = rank_of(ranks[1]);
        kill(ranks[1], SIGSTOP);
        const int status = wait_exit(mpirun);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
        for (const pid_t rank : ranks) EXPECT_TRUE(wait_dead(rank)) << rank;
        const std::string log = read_file(path("log")).value();
        const std::size_t told = log.find(" has waited ");
        ASSERT_NE(told, std::string::npos) << log;
        EXPECT_EQ(log.find(" has waited ", told + 1), std::string::npos) << log;
        const std::string line = log.substr(told, log.find('\n', told) - told);
        EXPECT_TRUE(std::regex_search(
            line, std::regex(R"( s for (the (weights|gradients) of (embedding|layers\.\d|head) )"
                             R"(\((all-gather|reduce-scatter)|numbers of every rank \(all-reduce)\); )")))
            << line;
        EXPECT_NE(line.find("rank " + victim + " does not answer"), std::string::npos) << line;
    }
}

}  // namespace
}  // namespace atl::program
