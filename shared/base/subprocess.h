#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl {

struct CommandResult {
    int exit_code = -1;  // 128 + signal when a signal ended it
    std::string out;
    std::string err;
    bool timed_out = false;
};

struct CommandOptions {
    std::string input;                               // fed to standard input
    std::map<std::string, std::string> environment;  // added to ours
    std::filesystem::path directory;                 // working directory; empty: ours
    std::chrono::milliseconds timeout{60000};        // then SIGTERM to its process group, SIGKILL 2 s later
    std::stop_token stop;                            // a request counts as the timeout: noticed within 0.2 s
    std::size_t output_bytes_max = 16U << 20;        // of each stream; the rest is read and dropped
    // More input, asked for once all before it was fed; empty: there is no more. The time that it takes is not watched.
    std::function<std::string()> source = {};
    // Takes standard output as it comes, in place of CommandResult::out. False counts as the timeout.
    std::function<bool(std::string_view)> sink = {};
};

// Runs argv (found in PATH) and waits for that process: grandchildren that keep its pipes open are not waited for. It
// gets a process group of its own, no other descriptors of ours and default signal handling. An Error only when it
// cannot be started (kNotFound: no such program); its own failure is in exit_code. Thread-safe.
//
//   ATOLL_TRY(const auto result, run_command({"squeue", "--me"}, {.timeout = std::chrono::seconds(20)}));
//   if (result.exit_code != 0) return unavailable("squeue: " + result.err);
Result<CommandResult> run_command(const std::vector<std::string>& argv, const CommandOptions& options = {});

struct DaemonOptions {
    std::filesystem::path log;                       // standard output and error, appended
    std::map<std::string, std::string> environment;  // added to ours
    std::filesystem::path directory;
};

// Starts argv in a session of its own, outliving this process. Returns its process id; while this process lives it is
// the parent, so that waitpid() tells whether the daemon died.
Result<pid_t> start_daemon(const std::vector<std::string>& argv, const DaemonOptions& options);

}  // namespace atl
