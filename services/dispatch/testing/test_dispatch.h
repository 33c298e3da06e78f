#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "shared/base/subprocess.h"

namespace atl::dispatch {

// The program atoll-dispatch beside this one, to be killed without warning and started again.
class TestDispatch {
  public:
    TestDispatch() = default;
    ~TestDispatch() { kill(); }
    TestDispatch(const TestDispatch&) = delete;
    TestDispatch& operator=(const TestDispatch&) = delete;

    void start(const std::filesystem::path& config, const std::filesystem::path& log,
               std::map<std::string, std::string> environment = {}) {
        const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "atoll-dispatch";
        const auto started = start_daemon({program.string(), "--config", config.string()},
                                          {.log = log, .environment = std::move(environment), .directory = {}});
        ASSERT_TRUE(started.ok()) << started.error().message;
        process_ = *started;
    }
    void kill() {
        if (process_ <= 0) return;
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
        process_ = 0;
    }

  private:
    pid_t process_ = 0;
};

}  // namespace atl::dispatch
