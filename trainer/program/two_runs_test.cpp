// Two runs at one place: whoever comes second is refused and takes nothing from the first.
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>

#include "trainer/program/testing/running_program_fixture.h"

namespace atl::program {
namespace {

namespace fs = std::filesystem;

class TwoRunsTest : public RunningProgramTest {
  protected:
    const std::vector<std::string> endless_ = {"--steps", "100000000", "--global-batch-size", "4"};

    void expect_refused(const std::vector<std::string>& flags, const std::string& words) const {
        const auto second = train("out", flags);
        EXPECT_EQ(second.exit_code, 2) << second.out << second.err;
        EXPECT_NE(second.err.find(words), std::string::npos) << second.err;
    }
    // Stops the first run as a batch system does: all that it has trained must be in its state.
    void expect_state_of(pid_t first) const {
        kill(first, SIGTERM);
        const int status = wait_exit(first);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << read_file(path("log")).value();
        auto flags = endless_;
        flags.insert(flags.end(), {"--resume", "--time-limit", kAtOnce});
        const auto resumed = train("out", flags);
        EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
        EXPECT_NE(resumed.err.find("goes on after step "), std::string::npos) << resumed.err;
    }
};

TEST_F(TwoRunsTest, ARefusedRunTakesNothingFromTheFirst) {
    const pid_t first = start_endless(1);
    for (const std::vector<std::string>& flags :
         {std::vector<std::string>{"--steps", "2"}, {"--steps", "2", "--resume"}, {"--steps", "0"}})
        expect_refused(flags, "another process is writing into " + path("out"));
    EXPECT_TRUE(fs::is_directory(path("out.state")));
    EXPECT_TRUE(fs::is_directory(path("out")));
    expect_state_of(first);
}

// Its lock goes with the directory that it has open, so a new one at that place has none.
TEST_F(TwoRunsTest, ARunWhoseOutWasRenamedOrRemovedStillHasItsStateForItself) {
    for (const bool renames : {true, false}) {
        const pid_t first = start_endless(1);
        if (renames) {
            fs::rename(path("out"), path("renamed"));
        } else {
            fs::remove_all(path("out"));
        }
        expect_refused({"--steps", "2"}, "another process is writing into " + path("out.state"));
        EXPECT_TRUE(fs::is_directory(path("out.state")));
        expect_state_of(first);
        for (const char* name : {"out", "out.state", "renamed"}) fs::remove_all(path(name));
    }
}

TEST_F(TwoRunsTest, TheLocksGoWithTheProcess) {
    const pid_t first = start_endless(1);
    kill(first, SIGKILL);
    wait_exit(first);
    EXPECT_EQ(train("out", {"--steps", "2", "--resume"}).exit_code, 0);
}

}  // namespace
}  // namespace atl::program
