#include "services/stack/systemd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/stack/components.h"
#include "services/stack/process.h"
#include "shared/base/file.h"
#include "shared/base/text.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTarget = "atoll.target";
constexpr const char* kRenewalUnit = "atoll-renewal.service";

std::string unit_of(const std::string& component) {
    return "atoll-" + component + ".service";
}

// A word of a unit's line, in which '%' begins a specifier (systemd.unit(5)).
std::string unit_word(const std::string& text) {
    std::string word = replace_all(replace_all(text, "\\", "\\\\"), "\"", "\\\"");
    return "\"" + replace_all(std::move(word), "%", "%%") + "\"";
}

// One of an ExecStart line, in which '$' begins a variable (systemd.service(5)).
std::string exec_word(const std::string& text) {
    return replace_all(unit_word(text), "$", "$$");
}

std::string signal_name(int signal) {
    return signal == SIGINT ? "SIGINT" : signal == SIGQUIT ? "SIGQUIT" : "SIGTERM";
}

// The units of the waves before.
std::vector<std::string> needed_by(const std::string& name, const std::vector<std::string>& components) {
    std::vector<std::string> units;
    for (const auto& wave : start_waves()) {
        if (std::find(wave.begin(), wave.end(), name) != wave.end()) break;
        for (const std::string& before : wave)
            if (std::find(components.begin(), components.end(), before) != components.end())
                units.push_back(unit_of(before));
    }
    return units;
}

// Limits what a component that was taken over can reach; `systemd-analyze security` rates the unit.
// dispatch starts the jobs of local facilities, which may need devices, namespaces and a setuid apptainer. A user's own
// systemd can do the first half alone. The state may be in /usr, /etc or /boot, which are closed here. Not
// MemoryDenyWriteExecute, for Java; nor PrivateTmp, as sockets may be in /tmp.
std::string limits(const std::string& component, const fs::path& state, bool is_system) {
    std::string lines;
    if (is_system) lines += "ProtectSystem=full\nReadWritePaths=" + unit_word(state) + "\n";
    if (component == "dispatch") return lines;
    lines +=
        "NoNewPrivileges=yes\nRestrictSUIDSGID=yes\nRestrictRealtime=yes\nRestrictNamespaces=yes\nLockPersonality=yes\n"
        "SystemCallArchitectures=native\n";
    if (!is_system) return lines;
    return lines +
           "CapabilityBoundingSet=\nPrivateDevices=yes\nProtectControlGroups=yes\nProtectKernelTunables=yes\n"
           "ProtectKernelModules=yes\nProtectKernelLogs=yes\nProtectClock=yes\nProtectHostname=yes\n";
}

// The services wait for their database and broker by themselves: an order is enough, none takes another down with it.
std::string unit_text(const Stack& stack, const Component& component, const fs::path& atoll,
                      const std::vector<std::string>& needed, const std::string& user) {
    const auto command = [&](const char* verb) {
        return exec_word(atoll) + " component " + verb + " " + component.name + " --state " +
               exec_word(stack.layout.state);
    };
    return "# Written by `atoll up --systemd`.\n"
           "[Unit]\n"
           "Description=Atoll: " +
           component.name +
           "\n"
           "PartOf=" +
           std::string(kTarget) + "\nAfter=network.target " + join(needed, " ") +
           "\n"
           "StartLimitIntervalSec=0\n\n"
           "[Service]\n" +
           (user.empty() ? "" : "User=" + user + "\n") + limits(component.name, stack.layout.state, !user.empty()) +
           "ExecStart=" + command("run") + "\nExecStartPost=" + command("wait") +
           "\n"
           "Restart=always\n"
           "RestartSec=1\n"
           "KillMode=mixed\n"
           "KillSignal=" +
           signal_name(component.stop_signal) +
           "\nTimeoutStartSec=" + std::to_string(component.start_time_max.count()) +
           "\nTimeoutStopSec=" + std::to_string(component.stop_time_max.count()) +
           "\n"
           "SuccessExitStatus=143\n"  // Java's after SIGTERM
           "LimitNOFILE=65536\n\n"
           "[Install]\n"
           "WantedBy=" +
           kTarget + "\n";
}

// What the supervisor does besides, of a stack without one.
std::string renewal_text(const Stack& stack, const fs::path& atoll, const std::string& user) {
    return "# Written by `atoll up --systemd`.\n"
           "[Unit]\n"
           "Description=Atoll: renews tokens, has the gateway take a renewed certificate\n"
           "PartOf=" +
           std::string(kTarget) +
           "\nStartLimitIntervalSec=0\n\n"
           "[Service]\n" +
           (user.empty() ? "" : "User=" + user + "\n") + limits("renewal", stack.layout.state, !user.empty()) +
           "ExecStart=" + exec_word(atoll) + " component renew --state " + exec_word(stack.layout.state) +
           "\nRestart=always\n"
           "RestartSec=10\n\n"
           "[Install]\n"
           "WantedBy=" +
           kTarget + "\n";
}

std::string target_text(const std::vector<std::string>& components) {
    std::vector<std::string> units = {kRenewalUnit};
    for (const std::string& name : components) units.push_back(unit_of(name));
    return "# Written by `atoll up --systemd`.\n"
           "[Unit]\n"
           "Description=Atoll: a coordinator on this machine\n"
           "Wants=" +
           join(units, " ") +
           "\n\n"
           "[Install]\n"
           "WantedBy=" +
           std::string(::geteuid() == 0 ? "multi-user.target" : "default.target") + "\n";
}

Status check_name(const std::string& name) {
    for (const auto& wave : start_waves())
        if (std::find(wave.begin(), wave.end(), name) != wave.end()) return {};
    return invalid_argument("component", "no component is called '" + name + "'");
}

Result<Component> recorded_component(const fs::path& state, const std::string& name) {
    ATOLL_TRY(const Stack stack, recorded_stack(state));
    ATOLL_RETURN_IF_ERROR(check_name(name));
    return component_named(stack, name);
}

}  // namespace

Result<std::vector<fs::path>> write_units(const fs::path& state, const fs::path& atoll, const fs::path& directory,
                                          const std::string& user) {
    check((::geteuid() == 0) == !user.empty(), "root's units run as another user");
    ATOLL_TRY(const Stack stack, recorded_stack(state));
    ATOLL_TRY(const nlohmann::json description, read_stack_file(stack.layout.state));
    const std::vector<std::string> components = description.at("components");
    for (const std::string& name : components) ATOLL_RETURN_IF_ERROR(check_name(name));
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) return invalid_argument("--systemd", "cannot make " + directory.string() + ": " + error.message());
    std::vector<fs::path> files = {directory / kTarget};
    ATOLL_RETURN_IF_ERROR(write_file_atomic(files.back(), target_text(components)));
    files.push_back(directory / kRenewalUnit);
    ATOLL_RETURN_IF_ERROR(write_file_atomic(files.back(), renewal_text(stack, atoll, user)));
    for (const std::string& name : components) {
        files.push_back(directory / unit_of(name));
        ATOLL_RETURN_IF_ERROR(write_file_atomic(
            files.back(), unit_text(stack, component_named(stack, name), atoll, needed_by(name, components), user)));
    }
    return files;
}

// Not systemd, which opens a unit's log as root and follows links.
Status write_to_log(const fs::path& log) {
    const UniqueFd file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640));
    if (!file.valid() || ::dup2(file.get(), STDOUT_FILENO) < 0 || ::dup2(file.get(), STDERR_FILENO) < 0)
        return file_error(log, "open");
    return {};
}

Result<std::vector<std::string>> become_component(const fs::path& state, const std::string& name) {
    ATOLL_TRY(const Component component, recorded_component(state, name));
    const Layout layout{fs::absolute(state).lexically_normal()};
    ATOLL_RETURN_IF_ERROR(record_self(layout.pid_file(name)));
    ATOLL_RETURN_IF_ERROR(write_to_log(layout.log(name)));
    return component.start();
}

Status await_component(const fs::path& state, const std::string& name) {
    ATOLL_TRY(const Component component, recorded_component(state, name));
    const auto deadline = std::chrono::steady_clock::now() + component.start_time_max;
    while (!component.ready()) {
        if (std::chrono::steady_clock::now() > deadline)
            return unavailable(name + " is not ready after " + std::to_string(component.start_time_max.count()) + " s");
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return {};
}

}  // namespace atl::stack
