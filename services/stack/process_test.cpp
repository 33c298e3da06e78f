#include "services/stack/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "shared/base/file.h"

namespace atl::stack {
namespace {

class ProcessTest : public ::testing::Test {
  protected:
    ~ProcessTest() override { (void)stop_recorded(pid_file(), SIGKILL, std::chrono::seconds(5)); }
    std::filesystem::path pid_file() const { return directory_.path() / "x.pid"; }
    std::filesystem::path log() const { return directory_.path() / "x.log"; }
    Status start(const std::string& script) { return start_recorded({"/bin/sh", "-c", script}, pid_file(), log()); }
    // Until the program has said so in its log; false after a minute.
    bool said(const std::string& word) const {
        for (const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
             std::chrono::steady_clock::now() < deadline;) {
            if (read_file(log()).ok() && read_file(log())->find(word) != std::string::npos) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        return false;
    }

  private:
    TemporaryDirectory directory_;
};

TEST_F(ProcessTest, AStartedProgramRunsUntilItIsStopped) {
    ASSERT_TRUE(start("echo up; exec sleep 1000").ok());
    ASSERT_TRUE(said("up"));
    const auto process = running_process(pid_file());
    ASSERT_TRUE(process);
    EXPECT_EQ(::kill(process->pid, 0), 0);
    EXPECT_EQ(stop_recorded(pid_file(), SIGTERM, std::chrono::seconds(60)).value(), 0);
    EXPECT_FALSE(running_process(pid_file()));
    EXPECT_FALSE(std::filesystem::exists(pid_file()));
}

TEST_F(ProcessTest, AProgramThatIgnoresTheSignalIsKilledWithItsChildren) {
    ASSERT_TRUE(start("trap '' TERM; sleep 1000 & echo up; while :; do wait; done").ok());
    ASSERT_TRUE(said("up"));
    EXPECT_EQ(stop_recorded(pid_file(), SIGTERM, std::chrono::milliseconds(300)).value(), 2);
    EXPECT_FALSE(running_process(pid_file()));
}

TEST_F(ProcessTest, AProcessThatGotARecycledPidIsNotTakenForOurs) {
    ASSERT_TRUE(start("echo up; exec sleep 1000").ok());
    ASSERT_TRUE(said("up"));
    const auto process = running_process(pid_file());
    // Our own pid with a start of 9 ticks (field 22): this process cannot be that old.
    const std::string record = read_file(pid_file()).value();
    std::string recycled = std::to_string(::getpid()) + " (sh) S";
    for (int field = 4; field < 22; ++field) recycled += " 0";
    recycled += " 9" + record.substr(record.find('\n'));
    ASSERT_TRUE(write_file_atomic(pid_file(), recycled).ok());
    EXPECT_FALSE(running_process(pid_file()));
    EXPECT_EQ(stop_recorded(pid_file(), SIGKILL, std::chrono::seconds(1)).value(), 0) << "and we are still here";
    ::kill(process->pid, SIGKILL);
}

TEST_F(ProcessTest, ARecordOfAnEarlierBootNamesNoProcess) {
    ASSERT_TRUE(start("echo up; exec sleep 1000").ok());
    ASSERT_TRUE(said("up"));
    const auto process = running_process(pid_file());
    const std::string record = read_file(pid_file()).value();
    const std::string first_line = record.substr(0, record.find('\n') + 1);
    ASSERT_TRUE(write_file_atomic(pid_file(), first_line + "00000000-0000-0000-0000-000000000000\n").ok());
    EXPECT_FALSE(running_process(pid_file()));
    ::kill(process->pid, SIGKILL);
}

TEST_F(ProcessTest, ALongLogIsSetAsideAtAStart) {
    ASSERT_TRUE(write_file_atomic(log(), "old").ok());
    std::filesystem::resize_file(log(), 65U << 20);  // without blocks
    ASSERT_TRUE(start("echo up; exec sleep 1000").ok());
    ASSERT_TRUE(said("up"));
    EXPECT_EQ(read_file(log()).value(), "up\n");
    auto aside = log();
    EXPECT_EQ(std::filesystem::file_size(aside.replace_extension(".1" + log().extension().string())), 65U << 20);
    ASSERT_TRUE(stop_recorded(pid_file(), SIGKILL, std::chrono::seconds(10)).ok());
}

TEST_F(ProcessTest, WhatADeadLeaderLeftIsStoppedToo) {
    ASSERT_TRUE(start("sleep 1000 & echo child $!; exec sleep 1000").ok());
    ASSERT_TRUE(said("child"));
    const pid_t child = std::stoi(read_file(log())->substr(6));
    ::kill(running_process(pid_file())->pid, SIGKILL);
    EXPECT_EQ(stop_recorded(pid_file(), SIGTERM, std::chrono::seconds(60)).value(), 0);
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    std::string line;
    std::getline(stat, line);
    EXPECT_TRUE(line.empty() || line.find(") Z ") != std::string::npos) << line;
}

TEST(RunCheckedTest, AFailureIsToldWhateverTheProgramHasSaid) {
    const auto run = [](const std::string& script, std::chrono::milliseconds time_max = std::chrono::minutes(2)) {
        return run_checked({"/bin/sh", "-c", script}, "it failed", time_max);
    };
    EXPECT_EQ(run("echo out; echo err >&2").value(), "out\n");
    EXPECT_EQ(run("echo why >&2; exit 3").error().message, "it failed: why");
    EXPECT_EQ(run("echo why; exit 3").error().message, "it failed: why");
    EXPECT_EQ(run("exit 3").error().message, "it failed: it said nothing and ended with exit status 3");
    const std::chrono::milliseconds short_time(100);
    EXPECT_EQ(run("exec sleep 1000", short_time).error().message, "it failed: it gave no answer within 0.1 s");
    const std::string late = run("echo begins; exec sleep 1000", std::chrono::seconds(1)).error().message;
    EXPECT_TRUE(late.starts_with("it failed: it gave no answer within 1.0 s")) << late;
}

}  // namespace
}  // namespace atl::stack
