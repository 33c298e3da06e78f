#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "shared/base/testing/sanitizers.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

using std::chrono::steady_clock;

class OffloadTest : public ProgramTest {
  protected:
    OffloadTest() { std::filesystem::create_directory(path("disk")); }

    std::vector<std::string> offloaded(std::vector<std::string> flags) const {
        flags.insert(flags.end(), {"--offload-optimizer", "nvme", "--offload-dir", path("disk")});
        return flags;
    }
    bool disk_is_empty() const { return std::filesystem::is_empty(path("disk")); }

    // A run without end, after its first step.
    pid_t start_endless() const {
        std::vector<std::string> flags = {"train", "--model",    path("model"), "--data",    path("data.safetensors"),
                                          "--out", path("out"),  "--steps",     "100000000", "--threads",
                                          "1",     "--overwrite"};
        const auto started = start_daemon(command(offloaded(flags), 1), {path("log"), {}, {}});
        EXPECT_TRUE(started.ok());
        const auto first_step = [&] {
            const auto text = read_file(path("log"));
            return text.ok() && text->find("\"step\":1,") != std::string::npos;
        };
        EXPECT_TRUE(wait_until(first_step));
        return started.ok() ? *started : -1;
    }
    // False after three minutes.
    template <class Condition>
    static bool wait_until(const Condition& condition) {
        for (const auto until = steady_clock::now() + std::chrono::minutes(3); steady_clock::now() < until;) {
            if (condition()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        return false;
    }
    // The file without a name that another process has open; empty: it has none.
    std::filesystem::path file_of(pid_t process) const {
        std::error_code ignored;
        for (const auto& entry :
             std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", ignored)) {
            const auto target = std::filesystem::read_symlink(entry, ignored);
            if (target.string().starts_with(path("disk") + "/atoll-optimizer.rank0.")) return entry.path();
        }
        return {};
    }
};

// The largest unit is eight chunks.
TEST_F(OffloadTest, TheModelIsTheSameBitForBit) {
    make_wide_model("model");
    if (HasFatalFailure()) return;
    struct Case {
        std::vector<std::string> flags;
        int ranks;
    };
    const std::vector<Case> cases = {{{}, 1},
                                     {{"--precision", "bf16", "--broadcast-from-rank0"}, 2},
                                     {{"--precision", "fp16", "--sharding", "full_shard"}, 2},
                                     {{"--precision", "bf16", "--moments-dtype", "bf16"}, 1},
                                     {{"--optimizer", "sgd", "--momentum", "0.9"}, 1}};
    for (const auto& [more, ranks] : cases) {
        std::vector<std::string> flags = {"--steps",      "2",    "--global-batch-size", "4", "--max-grad-norm", "0.1",
                                          "--save-dtype", "fp32", "--no-decay-norms"};
        flags.insert(flags.end(), more.begin(), more.end());
        const auto kept = train("kept", flags, ranks);
        const auto result = train("out", offloaded(flags), ranks);
        ASSERT_EQ(result.exit_code, 0) << result.err;
        EXPECT_EQ(member(result.out, "loss"), member(kept.out, "loss"));
        EXPECT_EQ(weights("out") == weights("kept"), true);
        EXPECT_TRUE(disk_is_empty());
    }
}

TEST_F(OffloadTest, AStoppedRunGoesOnBitForBitWithOrWithoutIt) {
    const std::vector<std::string> flags = {"--steps",     "3",    "--global-batch-size", "4",
                                            "--precision", "bf16", "--save-dtype",        "fp32"};
    auto stopping = offloaded(flags);
    stopping.insert(stopping.end(), {"--time-limit", kAtOnce, "--sharding", "shard_optimizer"});
    auto resuming = flags;
    resuming.insert(resuming.end(), {"--resume", "--time-limit", kAtOnce});
    auto ending = offloaded(flags);
    ending.emplace_back("--resume");
    const auto whole = member(train("whole", flags, 2).out, "loss");
    ASSERT_EQ(train("out", stopping, 2).exit_code, 0);
    ASSERT_EQ(train("out", resuming, 2).exit_code, 0);
    const auto last = train("out", ending, 2);
    EXPECT_EQ(member(last.out, "loss"), std::vector<double>{whole.back()}) << last.err;
    EXPECT_EQ(weights("out") == weights("whole"), true);
}

// On a CPU, where the host's memory is the device's; on another device: FarDeviceTrainTest.
TEST_F(OffloadTest, TheHostsMemoryOnACpuIsWhereWeightsLieWithoutIt) {
    const auto with = [](std::vector<std::string> flags, const std::vector<std::string>& more) {
        flags.insert(flags.end(), more.begin(), more.end());
        return flags;
    };
    const std::vector<std::string> to_memory = {"--offload-params", "cpu", "--offload-optimizer", "cpu"};
    const std::vector<std::string> flags = {"--steps", "2", "--global-batch-size", "4", "--sharding", "full_shard"};
    for (const int ranks : {1, 2}) {
        const auto kept = train("kept", flags, ranks);
        const auto result = train("out", with(flags, to_memory), ranks);
        ASSERT_EQ(result.exit_code, 0) << result.err;
        EXPECT_EQ(member(result.out, "loss"), member(kept.out, "loss"));
        EXPECT_EQ(weights("out") == weights("kept"), true);
    }
    const std::vector<std::string> planning = {"plan", "--model", path("model"), "--data", path("data.safetensors")};
    EXPECT_EQ(member(run(with(planning, to_memory)).out, "allocated_bytes"),
              member(run(planning).out, "allocated_bytes"));
    const std::vector<std::string> evaluating = {"eval", "--model", path("out"), "--data", path("data.safetensors")};
    EXPECT_EQ(run(with(evaluating, {"--offload-params", "cpu"})).out, run(evaluating).out);
}

TEST_F(OffloadTest, LowRankAdaptersAreOffloadedToo) {
    const std::vector<std::string> flags = {"--steps", "3", "--lora-rank", "2", "--precision", "bf16"};
    ASSERT_EQ(train("kept", flags).exit_code, 0);
    const auto result = train("out", offloaded(flags));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(read_file(path("out/adapter_model.safetensors")).value() ==
                  read_file(path("kept/adapter_model.safetensors")).value(),
              true);
}

TEST_F(OffloadTest, AMissingDirectoryAndAFullDiskAreNamed) {
    auto flags = offloaded({"--steps", "2"});
    flags.back() = path("nowhere");
    const auto missing = train("out", flags);
    EXPECT_EQ(missing.exit_code, 2);
    EXPECT_NE(missing.err.find(path("nowhere") + "/atoll-optimizer.rank0"), std::string::npos) << missing.err;

    const auto training = command(offloaded({"train", "--model", path("model"), "--data", path("data.safetensors"),
                                             "--out", path("out"), "--steps", "1"}),
                                  1);
    const auto full = run_under({"sh", "-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"}, training);
    EXPECT_EQ(full.exit_code, 1) << full.err;
    EXPECT_NE(full.err.find(path("disk") + "/atoll-optimizer.rank0"), std::string::npos) << full.err;
}

TEST_F(OffloadTest, AChangedByteEndsTheRunAndIsNamed) {
    const pid_t child = start_endless();
    const auto file = file_of(child);
    ASSERT_FALSE(file.empty());
    const UniqueFd disk(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(disk.valid());
    int status = -1;
    const auto damage_until_it_ends = [&] {  // a step may write over it before it reads it
        EXPECT_EQ(::pwrite(disk.get(), "?", 1, 5), 1);
        return waitpid(child, &status, WNOHANG) == child;
    };
    const bool ended = wait_until(damage_until_it_ends);
    if (!ended) kill(child, SIGKILL);
    ASSERT_TRUE(ended);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    EXPECT_NE(read_file(path("log")).value().find(path("disk") + "/atoll-optimizer.rank0"), std::string::npos);
}

TEST_F(OffloadTest, NothingIsLeftOfItHoweverARunEnds) {
    for (const int signal : {SIGTERM, SIGKILL}) {
        const pid_t child = start_endless();
        EXPECT_FALSE(file_of(child).empty());
        EXPECT_TRUE(disk_is_empty());
        kill(child, signal);
        int status = -1;
        ASSERT_TRUE(wait_until([&] { return waitpid(child, &status, WNOHANG) == child; }));
        EXPECT_TRUE(disk_is_empty());
        std::filesystem::remove(path("log"));
    }
}

TEST_F(OffloadTest, ThePlanIsWhatARunTakesAndSuggestsIt) {
    ATOLL_SKIP_IF_SANITIZED();
    expect_plan_holds(offloaded({}), 60e6);
    expect_plan_holds(offloaded({"--precision", "bf16"}), 60e6);
    const auto plan = [&](std::vector<std::string> flags) {
        flags.insert(flags.begin(), {"plan", "--model", path("wide"), "--data", path("data.safetensors")});
        return run(flags);
    };
    const auto kept = nlohmann::json::parse(plan({"--activation-checkpointing", "full"}).out);
    const auto moved = nlohmann::json::parse(plan(offloaded({"--activation-checkpointing", "full"})).out);
    EXPECT_EQ(kept["offloaded_bytes"], 0);
    EXPECT_NEAR(moved["offloaded_bytes"].get<double>(), kept["moments_bytes"].get<double>(), 1e5) << "whole pages";
    const auto between = (kept["total_bytes"].get<std::int64_t>() + moved["total_bytes"].get<std::int64_t>()) / 2;
    const auto refused = plan({"--memory-bytes", std::to_string(between)});
    EXPECT_EQ(refused.exit_code, 3);
    EXPECT_NE(refused.err.find("--offload-optimizer nvme"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace atl::program
