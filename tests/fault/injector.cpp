#include "tests/fault/injector.h"

#include <algorithm>
#include <csignal>
#include <thread>

namespace atl::fault {
namespace {

using std::chrono::milliseconds;

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

Injector::Injector(std::filesystem::path directory, Supervisor& supervisor)
    : directory_(std::move(directory)), supervisor_(supervisor) {}

void Injector::later(milliseconds after, std::function<void()> mend) {
    mends_.emplace(Clock::now() + after, std::move(mend));
}

void Injector::mend_due() {
    while (!mends_.empty() && mends_.begin()->first <= Clock::now()) {
        const auto mend = std::move(mends_.begin()->second);
        mends_.erase(mends_.begin());
        mend();
    }
}

void Injector::mend_all() {
    for (auto& [at, mend] : mends_) mend();
    mends_.clear();
}

void Injector::inject(const Fault& fault) {
    if (kill(fault)) ++counts_[fault.name()];
}

std::vector<Process> Injector::find_targets(const std::string& target) const {
    const auto& components = component_names();
    if (std::find(components.begin(), components.end(), target) != components.end()) {
        const Process process = supervisor_.find(target);
        return process.pid == 0 ? std::vector<Process>() : std::vector<Process>{process};
    }
    const auto keep = [](const std::function<bool(const Process&)>& is_wanted) {
        std::vector<Process> kept = list_processes();
        std::erase_if(kept, [&](const Process& process) { return !is_wanted(process); });
        return kept;
    };
    if (target == "gateway worker" || target == "postgres backend") {
        const pid_t parent = supervisor_.find(target.substr(0, target.find(' '))).pid;
        return keep([&](const Process& process) { return parent != 0 && process.parent == parent; });
    }
    // At a site: what has one of our directories among its arguments, or works there.
    const std::string sites = (directory_ / "site-").string();
    const std::string programs = (directory_ / "programs").string();
    const auto is_at_site = [&](const Process& process) {
        return contains(process.command, sites) || process.directory.starts_with(sites);
    };
    return keep([&](const Process& process) {
        if (!is_at_site(process)) return false;
        const std::string& command = process.command;
        if (target == "site trainer") return contains(command, programs + "/atoll-trainer");
        if (target == "site job") return command == "sh ./job.sh ";
        return command.starts_with(programs + "/atoll " + target.substr(target.find(' ') + 1));
    });
}

bool Injector::kill(const Fault& fault) {
    // What runs at a site is there for moments only.
    const auto deadline = Clock::now() + (fault.target.starts_with("site ") ? milliseconds(3000) : milliseconds(0));
    std::vector<Process> targets = find_targets(fault.target);
    while (targets.empty() && Clock::now() < deadline) {
        std::this_thread::sleep_for(milliseconds(10));
        targets = find_targets(fault.target);
    }
    if (targets.empty()) return false;
    // Said before, so that its end is expected.
    const auto& components = component_names();
    if (std::find(components.begin(), components.end(), fault.target) != components.end())
        supervisor_.restart(fault.target, fault.lasts);
    return send_signal(targets[fault.choice % targets.size()], SIGKILL);
}

}  // namespace atl::fault
