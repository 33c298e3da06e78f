#include "trainer/program/testing/running_program_fixture.h"

#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <thread>

namespace atl::program {

using std::chrono::steady_clock;

bool RunningProgramTest::wait_for(const std::string& file, const std::string& what) {
    for (const auto until = steady_clock::now() + kPatience; steady_clock::now() < until;) {
        const auto text = read_file(file);
        if (text.ok() && text->find(what) != std::string::npos) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
}

pid_t RunningProgramTest::start_endless(int ranks, const std::vector<std::string>& more) const {
    std::filesystem::remove(path("log"));
    auto arguments = command({"train", "--model", path("model"), "--data", path("data.safetensors"), "--out",
                              path("out"), "--steps", "100000000", "--global-batch-size", "4", "--threads", "1"},
                             ranks);
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto started = start_daemon(arguments, {path("log"), {}, {}});
    EXPECT_TRUE(started.ok());
    EXPECT_TRUE(wait_for(path("log"), "\"step\":1,"));
    return started.ok() ? *started : -1;
}

int RunningProgramTest::wait_exit(pid_t child) {
    int status = -1;
    for (const auto until = steady_clock::now() + kPatience; steady_clock::now() < until;) {
        if (waitpid(child, &status, WNOHANG) == child) return status;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "the process did not end";
    kill(child, SIGKILL);
    return status;
}

}  // namespace atl::program
