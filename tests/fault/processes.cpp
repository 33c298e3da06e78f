#include "tests/fault/processes.h"

#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace atl::fault {
namespace {

namespace fs = std::filesystem;

// proc(5); the program's name in the second field may hold anything.
std::optional<Process> read_process(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!std::getline(file, line) || line.rfind(')') == std::string::npos) return std::nullopt;
    Process process;
    process.pid = pid;
    std::istringstream fields(line.substr(line.rfind(')') + 1));
    std::string field;
    for (int number = 3; fields >> field; ++number) {
        if (number == 3 && (field == "Z" || field == "X")) return std::nullopt;
        if (number == 4) process.parent = std::stoi(field);
        if (number == 6) process.session = std::stoi(field);
        if (number == 22) process.start_ticks = std::stoull(field);
    }
    return process;
}

}  // namespace

std::vector<Process> list_processes() {
    std::vector<Process> processes;
    for (const auto& entry : fs::directory_iterator("/proc")) {
        const std::string name = entry.path().filename();
        pid_t pid = 0;
        if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
        auto process = read_process(pid);
        if (!process) continue;
        std::ifstream command(entry.path() / "cmdline");
        for (std::string argument; std::getline(command, argument, '\0');) process->command += argument + " ";
        std::error_code ignored;
        process->directory = fs::read_symlink(entry.path() / "cwd", ignored).string();
        processes.push_back(std::move(*process));
    }
    return processes;
}

bool send_signal(const Process& process, int signal) {
    const auto now = read_process(process.pid);
    return now && now->start_ticks == process.start_ticks && ::kill(process.pid, signal) == 0;
}

}  // namespace atl::fault
