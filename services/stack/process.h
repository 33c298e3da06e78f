#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/subprocess.h"

// Programs: those that are waited for, and those that outlive the command that started them. A pid file holds what the
// kernel says of the process (its /proc/PID/stat and the boot's id), so that a process that got a recycled pid is never
// taken for ours.
namespace atl::stack {

// Why a program failed that was given `time_max`: that it gave no answer in that time, what it said, or its exit status
// where it said nothing.
std::string failure_text(const CommandResult& result, std::chrono::milliseconds time_max);

// Runs a program in "/" until it ends: its standard output. kInternal: `what` ("initdb failed") and failure_text().
Result<std::string> run_checked(const std::vector<std::string>& argv, const std::string& what,
                                std::chrono::milliseconds time_max = std::chrono::minutes(2));

// What makes the data of a component from nothing may take a loaded machine as long.
inline constexpr std::chrono::minutes kMakeTimeMax{10};

struct Process {
    pid_t pid = 0;
    std::uint64_t start_ticks = 0;  // since boot
};

// Starts argv in a session of its own with its output appended to `log`. The pid file is written before argv runs, by
// the new process itself: a starter that is killed leaves no program that nobody knows of. A log above 64 MiB becomes
// NAME.1.EXT before.
Status start_recorded(const std::vector<std::string>& argv, const std::filesystem::path& pid_file,
                      const std::filesystem::path& log);

// Makes this process, and what it becomes by exec, the recorded one.
Status record_self(const std::filesystem::path& pid_file);

// The recorded process if it still runs.
std::optional<Process> running_process(const std::filesystem::path& pid_file);

// The arguments that it was started with; empty once it is gone.
std::vector<std::string> command_line(const Process& process);

double uptime_s(const Process& process);
// Of its session, and of its children in sessions of their own where they are to count; 0: the kernel does not tell us.
std::uint64_t memory_bytes(const Process& process, bool with_children = true);

// Sends `signal`, waits; after `patience` SIGKILL to all that is left of its session. Returns how many were killed so,
// 0 after a graceful end or when nothing ran. The pid file is gone afterwards.
Result<int> stop_recorded(const std::filesystem::path& pid_file, int signal, std::chrono::milliseconds patience);

}  // namespace atl::stack
