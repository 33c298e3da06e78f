#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/result.h"
#include "tests/fault/processes.h"

namespace atl::fault {

// Starts again what was killed, once its time has come, with `atoll up` as a person would: the components of a stack,
// and a second process of dispatch and of aggregation beside it. From any thread.
class Supervisor {
  public:
    // `programs`: where atoll and the services are. `stack`: the state directory, where all runs but the second ones.
    Supervisor(std::filesystem::path programs, std::filesystem::path stack);

    // The living process of "dispatch", "second dispatch", "postgres", …; none: pid 0.
    Process find(const std::string& component) const;
    void restart(const std::string& component, std::chrono::milliseconds after);
    // Starts all that does not run and waits until it is ready.
    Status restore(std::chrono::seconds patience);
    // What ended though nobody had killed it, with its last words.
    std::vector<std::string> unexpected_ends() const;
    void stop();  // starts nothing any more

  private:
    using Clock = std::chrono::steady_clock;

    void run(const std::stop_token& stop);
    void notice_ends();
    std::vector<std::string> due() const;
    Status start(const std::vector<std::string>& components);
    Status up(const std::vector<std::string>& components);
    Status start_second(const std::string& component);
    std::filesystem::path program(const std::string& name) const;

    std::filesystem::path programs_;
    std::filesystem::path stack_;
    TemporaryDirectory sockets_{"atoll-fault"};  // of the second ones: the stack's own path may be too long for one
    mutable std::mutex mutex_;
    std::map<std::string, Clock::time_point> restarts_;
    std::map<std::string, Process> seconds_;
    std::map<std::string, pid_t> seen_;  // alive at the last look
    std::vector<std::string> unexpected_;
    std::jthread thread_;
};

// "registry", …, "second aggregation"
const std::vector<std::string>& component_names();

}  // namespace atl::fault
