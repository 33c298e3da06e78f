#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

// The processes of this machine, to find those that a fault is to hit.
namespace atl::fault {

struct Process {
    pid_t pid = 0;
    pid_t parent = 0;
    pid_t session = 0;
    std::uint64_t start_ticks = 0;  // since boot: with the pid it names the process for good
    std::string command;            // its arguments with a space after each
    std::string directory;          // in which it works; empty where we may not know
};

// All that live.
std::vector<Process> list_processes();
// False when it is gone, and its pid another's perhaps.
bool send_signal(const Process& process, int signal);

}  // namespace atl::fault
