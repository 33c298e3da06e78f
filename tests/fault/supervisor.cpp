#include "tests/fault/supervisor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <future>

#include "shared/base/backoff.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/base/text.h"
#include "tests/e2e/demo/setup.h"

namespace atl::fault {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::string_view kSecond = "second ";

bool is_second(const std::string& component) {
    return component.starts_with(kSecond);
}

Process living_process(pid_t pid) {
    for (const Process& process : list_processes())
        if (process.pid == pid) return process;
    return {};
}

std::string last_lines(const fs::path& log) {
    constexpr std::size_t kBytes = 800;
    const auto text = read_file(log);
    return text.ok() ? text->substr(text->size() > kBytes ? text->size() - kBytes : 0) : "";
}

// Nothing of a stack that root starts runs as root.
std::vector<std::string> as_owner(const fs::path& stack) {
    struct stat info{};
    if (::geteuid() != 0 || ::stat(stack.c_str(), &info) != 0) return {};
    return {"setpriv", "--reuid=" + std::to_string(info.st_uid), "--regid=" + std::to_string(info.st_gid),
            "--clear-groups", "--"};
}

// What `atoll up` wrote for the first process, with an address of its own; a lease of four seconds, so that freezing it
// for longer costs little time.
std::string second_configuration(const std::string& text, const fs::path& socket) {
    std::string changed;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        const std::string line = text.substr(at, end - at);
        changed += line.starts_with("listen_address:") ? "listen_address: \"unix:" + socket.string() + "\"" : line;
        changed += '\n';
        if (line == "dispatch:" || line == "aggregation:") changed += "  lease_s: 4\n";
        at = end + 1;
    }
    return changed;
}

}  // namespace

const std::vector<std::string>& component_names() {
    static const std::vector<std::string> names = {"postgres", "kafka",           "registry",
                                                   "store",    "dispatch",        "aggregation",
                                                   "gateway",  "second dispatch", "second aggregation"};
    return names;
}

Supervisor::Supervisor(fs::path programs, fs::path stack) : programs_(std::move(programs)), stack_(std::move(stack)) {
    for (const std::string& component : component_names())
        if (is_second(component)) restarts_[component] = Clock::now();
    const Status given = demo::give_to_stack(sockets_.path(), stack_);
    check(given.ok(), given.ok() ? "" : given.error().message);
    thread_ = std::jthread([this](const std::stop_token& token) { run(token); });
}

void Supervisor::stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
    const std::lock_guard lock(mutex_);
    for (const auto& [component, process] : seconds_) send_signal(process, SIGKILL);
}

Process Supervisor::find(const std::string& component) const {
    if (is_second(component)) {
        const std::lock_guard lock(mutex_);
        const auto found = seconds_.find(component);
        return found == seconds_.end() ? Process() : living_process(found->second.pid);
    }
    const auto record = read_file(stack_ / "run" / (component + ".pid"));
    return record.ok() ? living_process(std::atoi(record->c_str())) : Process();
}

void Supervisor::restart(const std::string& component, milliseconds after) {
    const std::lock_guard lock(mutex_);
    restarts_[component] = Clock::now() + after;
}

std::vector<std::string> Supervisor::due() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> components;
    for (const auto& [component, at] : restarts_)
        if (at <= Clock::now()) components.push_back(component);
    return components;
}

void Supervisor::run(const std::stop_token& stop) {
    while (wait_unless_stopped(stop, milliseconds(200))) {
        notice_ends();
        const std::vector<std::string> components = due();
        if (components.empty()) continue;
        const auto began = Clock::now();
        const Status started = start(components);
        if (!started.ok()) continue;  // it was hit once more; again, then
        const std::lock_guard lock(mutex_);
        for (const std::string& component : components)
            if (restarts_[component] <= began) restarts_.erase(component);  // not killed meanwhile
    }
}

void Supervisor::notice_ends() {
    for (const std::string& component : component_names()) {
        const pid_t pid = find(component).pid;
        const std::lock_guard lock(mutex_);
        if (pid != 0 || restarts_.contains(component)) {
            seen_[component] = pid;
            continue;
        }
        if (std::exchange(seen_[component], 0) == 0) continue;
        unexpected_.push_back(component + " ended by itself:\n" + last_lines(stack_ / "logs" / (component + ".log")));
        restarts_[component] = Clock::now();
    }
}

// Ends early when more is due: what this one waits for may need it.
Status Supervisor::up(const std::vector<std::string>& components) {
    std::stop_source enough;
    CommandOptions options;
    options.timeout = std::chrono::minutes(3);
    options.stop = enough.get_token();
    auto done = std::async(std::launch::async, [&] {
        return run_command({programs_ / "atoll", "up", "--state", stack_, "--only", join(components, ",")}, options);
    });
    const std::size_t due_before = due().size();
    while (done.wait_for(milliseconds(100)) != std::future_status::ready)
        if (due().size() > due_before) enough.request_stop();
    ATOLL_TRY(const CommandResult result, done.get());
    return result.exit_code == 0 ? Status() : unavailable("atoll up: " + result.err);
}

Status Supervisor::start(const std::vector<std::string>& components) {
    std::vector<std::string> of_stack;
    for (const std::string& component : components)
        if (!is_second(component)) of_stack.push_back(component);
    if (!of_stack.empty()) ATOLL_RETURN_IF_ERROR(up(of_stack));
    for (const std::string& component : components)
        if (is_second(component)) ATOLL_RETURN_IF_ERROR(start_second(component));
    return {};
}

// `atoll up` copies the programs where its user cannot reach them.
fs::path Supervisor::program(const std::string& name) const {
    return fs::exists(stack_ / "bin" / name) ? stack_ / "bin" / name : programs_ / name;
}

Status Supervisor::start_second(const std::string& component) {
    if (find(component).pid != 0) return {};
    const std::string service = component.substr(kSecond.size());
    ATOLL_TRY(const std::string text, read_file(stack_ / "config" / (service + ".yaml")));
    const fs::path config = stack_ / "config" / ("second-" + service + ".yaml");
    ATOLL_RETURN_IF_ERROR(write_file_atomic(config, second_configuration(text, sockets_.path() / service), 0600));
    ATOLL_RETURN_IF_ERROR(demo::give_to_stack(config, stack_));
    const char* shim = std::getenv("ATOLL_FAULT_SHIM");
    std::vector<std::string> argv = as_owner(stack_);
    argv.insert(argv.end(), {program("atoll-" + service), "--config", config});
    ATOLL_TRY(
        const pid_t pid,
        start_daemon(argv, {.log = stack_ / "logs" / (component + ".log"),
                            .environment = {{"ATOLL_FAULT_SHIM", std::string(shim != nullptr ? shim : "") + "/second"}},
                            .directory = "/"}));
    const Process process = living_process(pid);
    if (process.pid == 0) return unavailable(component + " ended at once");
    const std::lock_guard lock(mutex_);
    seconds_[component] = process;
    return {};
}

Status Supervisor::restore(std::chrono::seconds patience) {
    Status status;
    for (const auto deadline = Clock::now() + patience; Clock::now() < deadline;) {
        status = start(component_names());
        if (status.ok()) break;
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    return status;
}

std::vector<std::string> Supervisor::unexpected_ends() const {
    const std::lock_guard lock(mutex_);
    return unexpected_;
}

}  // namespace atl::fault
