#include "shared/base/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "shared/base/file.h"

namespace atl {
namespace {

using std::chrono::milliseconds;

CommandResult run_shell(const std::string& script, CommandOptions options = {}) {
    auto result = run_command({"sh", "-c", script}, options);
    EXPECT_TRUE(result.ok());
    return result.ok() ? std::move(result).value() : CommandResult{};
}

// Polls until the condition holds; false when it never did.
template <class Condition>
bool eventually(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(milliseconds(10));
    }
    return true;
}

TEST(SubprocessTest, OutputErrorsAndExitCodeAreKeptApart) {
    const auto result = run_shell("echo out; echo err >&2; exit 7");
    EXPECT_EQ(result.exit_code, 7);
    EXPECT_EQ(result.out, "out\n");
    EXPECT_EQ(result.err, "err\n");
    EXPECT_FALSE(result.timed_out);
}

TEST(SubprocessTest, BigInputAndOutputDoNotBlockOneAnother) {
    CommandOptions options;
    options.input = std::string(8U << 20, 'x');
    const auto result = run_shell("tee /dev/stderr", options);
    EXPECT_EQ(result.out.size(), options.input.size());
    EXPECT_EQ(result.err.size(), options.input.size());
}

TEST(SubprocessTest, InputAndOutputOfAnyLengthGoThroughPieceByPiece) {
    CommandOptions options;
    options.input = "begin ";
    int pieces = 0;
    options.source = [&] { return ++pieces <= 100 ? std::string(100000, 'x') : std::string(); };
    std::size_t bytes = 0;
    options.sink = [&](std::string_view some) {
        bytes += some.size();
        return true;
    };
    const auto result = run_command({"cat"}, options);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->exit_code, 0);
    EXPECT_EQ(bytes, 10000006U);
    EXPECT_EQ(pieces, 101);
    EXPECT_EQ(result->out, "");
}

TEST(SubprocessTest, WhoTakesNoMoreOutputEndsTheCommand) {
    CommandOptions options;
    options.sink = [](std::string_view) { return false; };
    const auto result = run_command({"yes"}, options);
    ASSERT_TRUE(result.ok());
    EXPECT_TRUE(result->timed_out);
}

TEST(SubprocessTest, ACommandThatIgnoresItsInputDoesNotKillUs) {
    CommandOptions options;
    options.input = std::string(1U << 20, 'x');
    EXPECT_EQ(run_shell("exec <&-; exit 3", options).exit_code, 3);
}

TEST(SubprocessTest, OutputBeyondTheLimitIsDroppedAndTheCommandEnds) {
    CommandOptions options;
    options.output_bytes_max = 1000;
    const auto result = run_shell("head -c 300000 /dev/zero; echo end >&2", options);
    EXPECT_EQ(result.out.size(), 1000U);
    EXPECT_EQ(result.err, "end\n");
    EXPECT_EQ(result.exit_code, 0);
}

TEST(SubprocessTest, ATimeoutEndsTheWholeProcessGroup) {
    const TemporaryDirectory directory;
    CommandOptions options;
    options.timeout = milliseconds(300);
    options.directory = directory.path();
    const auto result = run_shell("sleep 100 & echo $! > pid; wait", options);
    EXPECT_TRUE(result.timed_out);
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    const pid_t grandchild = std::stoi(read_file(directory.path() / "pid").value());
    // Nobody may be there to reap it, so a zombie counts as dead.
    EXPECT_TRUE(eventually([&] {
        const auto stat = read_file("/proc/" + std::to_string(grandchild) + "/stat");
        return !stat.ok() || stat->find(") Z ") != std::string::npos;
    }));
}

TEST(SubprocessTest, ACommandThatIgnoresSigtermIsKilled) {
    CommandOptions options;
    options.timeout = milliseconds(300);
    const auto result = run_shell("trap '' TERM; while :; do sleep 1; done", options);
    EXPECT_TRUE(result.timed_out);
    EXPECT_EQ(result.exit_code, 128 + SIGKILL);
}

TEST(SubprocessTest, AGrandchildThatKeepsThePipesDoesNotHoldUsUp) {
    CommandOptions options;
    options.timeout = std::chrono::seconds(50);
    const auto result = run_shell("sleep 100 & echo $!", options);
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.exit_code, 0);
    ::kill(std::stoi(result.out), SIGKILL);
}

TEST(SubprocessTest, EnvironmentIsAddedAndDirectoryIsUsed) {
    const TemporaryDirectory directory;
    CommandOptions options;
    options.environment = {{"ATOLL_X", "a b"}};
    options.directory = directory.path();
    EXPECT_EQ(run_shell("echo \"$ATOLL_X ${PATH:+path}\"; pwd -P", options).out,
              "a b path\n" + std::filesystem::canonical(directory.path()).string() + "\n");
}

TEST(SubprocessTest, OurOtherDescriptorsAreClosedInTheChild) {
    const int leaked = ::fcntl(0, F_DUPFD, 100);
    ASSERT_GE(leaked, 100);
    const auto result = run_shell("ls /proc/self/fd");
    ::close(leaked);
    EXPECT_EQ(result.out.find(std::to_string(leaked)), std::string::npos) << result.out;
}

TEST(SubprocessTest, AMissingProgramIsNotFoundAndNamed) {
    const auto result = run_command({"atoll-no-such-program"});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(result.error().field, "atoll-no-such-program");
}

TEST(SubprocessTest, ADaemonHasItsOwnSessionAndWritesToItsLog) {
    const TemporaryDirectory directory;
    const auto log = directory.path() / "log";
    const auto pid = start_daemon({"sh", "-c", "echo \"$NAME\" started; exec sleep 100"},
                                  {.log = log, .environment = {{"NAME", "it"}}, .directory = directory.path()});
    ASSERT_TRUE(pid.ok());
    EXPECT_TRUE(eventually([&] { return read_file(log).value() == "it started\n"; }));
    EXPECT_EQ(::getsid(*pid), *pid);
    ::kill(*pid, SIGKILL);
    EXPECT_EQ(::waitpid(*pid, nullptr, 0), *pid);
}

TEST(SubprocessTest, AStopRequestEndsACommandAsATimeoutDoes) {
    std::stop_source source;
    CommandOptions options;
    options.stop = source.get_token();
    std::jthread stopper([&] { source.request_stop(); });
    const auto result = run_command({"sleep", "60"}, options);
    ASSERT_TRUE(result.ok());
    EXPECT_TRUE(result->timed_out);
    EXPECT_EQ(result->exit_code, 128 + 15);
}

}  // namespace
}  // namespace atl
