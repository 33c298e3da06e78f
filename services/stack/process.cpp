#include "services/stack/process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <thread>

#include "shared/base/file.h"
#include "shared/base/text.h"

namespace atl::stack {
namespace {

// What of /proc/PID/stat we read (proc(5)); the program's name in the second field may hold anything.
struct Stat {
    pid_t pid = 0;
    char state = '?';
    pid_t parent = 0;
    pid_t session = 0;
    std::uint64_t start_ticks = 0;
};

std::optional<Stat> parse_stat(const std::string& line) {
    Stat stat;
    const auto name_end = line.rfind(')');
    if (name_end == std::string::npos) return {};
    std::from_chars(line.data(), line.data() + line.size(), stat.pid);
    std::istringstream fields(line.substr(name_end + 1));
    std::string field;
    for (int number = 3; fields >> field; ++number) {
        if (number == 3) stat.state = field.front();
        if (number == 4) stat.parent = static_cast<pid_t>(std::stol(field));
        if (number == 6) stat.session = static_cast<pid_t>(std::stol(field));
        if (number == 22) stat.start_ticks = std::stoull(field);
    }
    if (stat.start_ticks == 0) return {};
    return stat;
}

std::optional<Stat> read_stat(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!std::getline(file, line)) return {};
    return parse_stat(line);
}

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

bool alive(const Stat& stat) {
    return stat.state != 'Z' && stat.state != 'X';
}

std::vector<Stat> all_living() {
    std::vector<Stat> living;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const std::string name = entry.path().filename();
        pid_t pid = 0;
        if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
        const auto stat = read_stat(pid);
        if (stat && alive(*stat)) living.push_back(*stat);
    }
    return living;
}

std::vector<Stat> living_in_session(pid_t leader) {
    auto members = all_living();
    std::erase_if(members, [&](const Stat& stat) { return stat.session != leader; });
    return members;
}

// What the pid file says, if it was written since this boot.
std::optional<Stat> recorded_in(const std::filesystem::path& pid_file) {
    std::ifstream file(pid_file);
    std::string line;
    std::string boot;
    if (!std::getline(file, line) || !std::getline(file, boot) || boot != boot_id()) return {};
    return parse_stat(line);
}

// False when another process has got the recorded pid since. A session's number is not given away while a member of
// the session lives: what is in the session of a leader that died is ours (nginx' workers, after its master's end).
bool still_ours(const Stat& recorded) {
    const auto now = read_stat(recorded.pid);
    return !now || now->start_ticks == recorded.start_ticks;
}

// A child of ours that ended stays a zombie until we ask; Postgres takes one for a living server.
void reap(pid_t pid) {
    ::waitpid(pid, nullptr, WNOHANG);
}

int signal_all(const std::vector<Stat>& processes, int signal) {
    return static_cast<int>(std::count_if(processes.begin(), processes.end(),
                                          [&](const Stat& stat) { return ::kill(stat.pid, signal) == 0; }));
}

// A page that n processes share counts for each by 1/n: Postgres' children share most of theirs.
std::uint64_t proportional_kibibytes(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("Pss:", 0) == 0) return std::stoull(line.substr(4));
    return 0;
}

// Polls until nothing of the session lives; false when `patience` ends first. Whom a leader leaves behind when it ends
// gets the signal too.
bool wait_for_end(pid_t leader, int signal, std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (bool passed_on = false;;) {
        reap(leader);
        const auto members = living_in_session(leader);
        if (members.empty()) return true;
        if (std::chrono::steady_clock::now() >= deadline) return false;
        const bool leads = std::any_of(members.begin(), members.end(), [&](const Stat& s) { return s.pid == leader; });
        if (!leads && !passed_on) {
            signal_all(members, signal);
            passed_on = true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

// What has grown long is set aside once; programs that write much set their logs aside themselves.
void set_long_log_aside(const std::filesystem::path& log) {
    constexpr std::uintmax_t kLongBytes = 64U << 20;
    std::error_code ignored;
    const auto bytes = std::filesystem::file_size(log, ignored);
    if (ignored || bytes < kLongBytes) return;
    auto aside = log;
    std::filesystem::rename(log, aside.replace_extension(".1" + log.extension().string()), ignored);
}

}  // namespace

std::string failure_text(const CommandResult& result, std::chrono::milliseconds time_max) {
    const std::string said(trim(result.err + result.out));
    if (result.timed_out)
        return "it gave no answer within " + human_seconds(std::chrono::duration<double>(time_max).count()) +
               (said.empty() ? "" : " and had said: " + said);
    return said.empty() ? "it said nothing and ended with exit status " + std::to_string(result.exit_code) : said;
}

Result<std::string> run_checked(const std::vector<std::string>& argv, const std::string& what,
                                std::chrono::milliseconds time_max) {
    CommandOptions options;
    options.directory = "/";
    options.timeout = time_max;
    ATOLL_TRY(CommandResult result, run_command(argv, options));
    if (result.exit_code == 0 && !result.timed_out) return std::move(result.out);
    return internal_error(what + ": " + failure_text(result, time_max));
}

Status start_recorded(const std::vector<std::string>& argv, const std::filesystem::path& pid_file,
                      const std::filesystem::path& log) {
    constexpr const char* kRecordThenRun =
        R"(cat /proc/$$/stat /proc/sys/kernel/random/boot_id >"$0.new" && mv "$0.new" "$0" && exec "$@")";
    std::vector<std::string> wrapped = {"/bin/sh", "-c", kRecordThenRun, pid_file.string()};
    wrapped.insert(wrapped.end(), argv.begin(), argv.end());
    ATOLL_RETURN_IF_ERROR(stop_recorded(pid_file, SIGTERM, std::chrono::seconds(5)));  // a dead leader's children
    set_long_log_aside(log);
    DaemonOptions options;
    options.log = log;
    options.directory = "/";
    ATOLL_TRY(const pid_t pid, start_daemon(wrapped, options));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!std::filesystem::exists(pid_file)) {
        const auto starter = read_stat(pid);
        if (!starter || !alive(*starter) || std::chrono::steady_clock::now() > deadline) {
            reap(pid);
            return internal_error("cannot start " + argv.front() + "; see " + log.string());
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return {};
}

Status record_self(const std::filesystem::path& pid_file) {
    ATOLL_RETURN_IF_ERROR(stop_recorded(pid_file, SIGTERM, std::chrono::seconds(5)));  // a dead leader's children
    ATOLL_TRY(const std::string stat, read_file("/proc/self/stat"));
    return write_file_atomic(pid_file, stat + boot_id() + "\n");
}

std::optional<Process> running_process(const std::filesystem::path& pid_file) {
    const auto recorded = recorded_in(pid_file);
    if (!recorded) return {};
    reap(recorded->pid);
    const auto now = read_stat(recorded->pid);
    if (!now || now->start_ticks != recorded->start_ticks || !alive(*now)) return {};
    return Process{now->pid, now->start_ticks};
}

std::vector<std::string> command_line(const Process& process) {
    std::ifstream file("/proc/" + std::to_string(process.pid) + "/cmdline");
    std::vector<std::string> arguments;
    for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
    return arguments;
}

double uptime_s(const Process& process) {
    std::ifstream file("/proc/uptime");
    double since_boot_s = 0;
    file >> since_boot_s;
    return since_boot_s - static_cast<double>(process.start_ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::uint64_t memory_bytes(const Process& process, bool with_children) {
    std::uint64_t kibibytes = 0;
    for (const auto& stat : all_living())
        if (stat.session == process.pid || (with_children && stat.parent == process.pid))
            kibibytes += proportional_kibibytes(stat.pid);
    return kibibytes * 1024;
}

Result<int> stop_recorded(const std::filesystem::path& pid_file, int signal, std::chrono::milliseconds patience) {
    int killed = 0;
    const auto recorded = recorded_in(pid_file);
    if (recorded && still_ours(*recorded)) {
        const pid_t leader = recorded->pid;
        if (running_process(pid_file)) ::kill(leader, signal);
        if (!wait_for_end(leader, signal, patience)) killed = signal_all(living_in_session(leader), SIGKILL);
        if (!wait_for_end(leader, SIGKILL, std::chrono::seconds(10)))
            return internal_error("process " + std::to_string(leader) + " does not end, even by SIGKILL");
    }
    std::error_code ignored;
    std::filesystem::remove(pid_file, ignored);
    return killed;
}

}  // namespace atl::stack
