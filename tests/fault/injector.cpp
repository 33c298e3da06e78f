#include "tests/fault/injector.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <thread>

#include "shared/kafka/kafka.h"

namespace atl::fault {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// The second ones have files of their own.
const std::vector<std::string> kServicePrograms = {
    "atoll-registry",           "atoll-store", "atoll-dispatch", "atoll-aggregation", "second/atoll-dispatch",
    "second/atoll-aggregation", "nginx"};

// What a site runs to stage and to push, for either dispatch. `atoll up` meets it too, and is repeated.
const std::vector<std::string> kSitePrograms = {"atoll", "second/atoll"};

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

bool is_component(const std::string& target) {
    const auto& components = component_names();
    return std::find(components.begin(), components.end(), target) != components.end();
}

bool has_shim() {
    return !std::string_view(ATOLL_FAULT_SHIM_LIBRARY).empty();
}

// libpq's "host='/path' port=…"
fs::path postgres_socket(const std::string& conninfo) {
    const auto begin = conninfo.find('\'') + 1;
    return fs::path(conninfo.substr(begin, conninfo.find('\'', begin) - begin)) / ".s.PGSQL.5432";
}

}  // namespace

Injector::Injector(fs::path directory, const json::Json& stack, Supervisor& supervisor)
    : directory_(std::move(directory)),
      supervisor_(supervisor),
      repeater_(kafka::with_credentials(stack.at("kafka").get<std::string>(),
                                        stack.at("kafka_credentials").get<std::string>())) {
    sockets_["postgres"] = postgres_socket(stack.at("postgres"));
    const std::string brokers = stack.at("kafka");
    kafka_port_ = std::atoi(brokers.substr(brokers.rfind(':') + 1).c_str());
    for (const auto& [service, address] : stack.at("services").items())
        sockets_[service] = address.get<std::string>().substr(std::strlen("unix:"));
}

void Injector::prepare_shim(const fs::path& directory) {
    fs::create_directories(directory / "shim/second");
    std::vector<std::string> programs = {"postgres"};
    programs.insert(programs.end(), kServicePrograms.begin(), kServicePrograms.end());
    programs.insert(programs.end(), kSitePrograms.begin(), kSitePrograms.end());
    for (const std::string& program : programs)
        std::ofstream(directory / "shim" / program) << std::string(sizeof(ShimState), '\0');
    ::setenv("ATOLL_FAULT_SHIM", (directory / "shim").c_str(), 1);
    if (!has_shim()) return;
    const fs::path library = directory / "shim/library.so";  // where all can reach it
    fs::copy_file(ATOLL_FAULT_SHIM_LIBRARY, library, fs::copy_options::overwrite_existing);
    ::setenv("LD_PRELOAD", library.c_str(), 1);
}

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
    using Action = bool (Injector::*)(const Fault&);
    static const std::map<std::string, Action> actions = {{"kill", &Injector::kill},
                                                          {"freeze", &Injector::freeze},
                                                          {"cut off", &Injector::cut},
                                                          {"cut from kafka", &Injector::cut_from_kafka},
                                                          {"break", &Injector::break_store},
                                                          {"fill", &Injector::fill_disk},
                                                          {"set clock of", &Injector::set_clock}};
    ++tries_[fault.name()];
    const bool hit = fault.kind == "repeat" ? repeater_.repeat(fault.choice) : (this->*actions.at(fault.kind))(fault);
    if (hit) ++counts_[fault.name()];
}

std::vector<Process> Injector::find_targets(const std::string& target) const {
    if (is_component(target)) {
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

Process Injector::choose_target(const Fault& fault) const {
    const auto deadline = Clock::now() + (fault.target.starts_with("site ") ? milliseconds(3000) : milliseconds(0));
    std::vector<Process> targets = find_targets(fault.target);
    while (targets.empty() && Clock::now() < deadline) {
        std::this_thread::sleep_for(milliseconds(10));
        targets = find_targets(fault.target);
    }
    return targets.empty() ? Process() : targets[fault.choice % targets.size()];
}

bool Injector::kill(const Fault& fault) {
    const Process target = choose_target(fault);
    if (target.pid == 0) return false;
    // Said before, so that its end is expected.
    if (is_component(fault.target)) supervisor_.restart(fault.target, fault.lasts);
    return send_signal(target, SIGKILL);
}

// With all that it has started.
bool Injector::freeze(const Fault& fault) {
    std::vector<Process> frozen = {choose_target(fault)};
    if (frozen.front().pid == 0) return false;
    for (const Process& process : list_processes())
        if (process.parent == frozen.front().pid && (fault.target == "postgres" || fault.target == "gateway"))
            frozen.push_back(process);
    for (const Process& process : frozen) send_signal(process, SIGSTOP);
    later(fault.lasts, [frozen] {
        for (const Process& process : frozen) send_signal(process, SIGCONT);
    });
    return true;
}

bool Injector::move_away(const fs::path& path, milliseconds time, Successor successor) {
    const fs::path away = path.string() + ".away";
    std::error_code error;
    if (fs::exists(away, error)) return false;
    fs::rename(path, away, error);
    if (error) return false;
    later(time, [path, away, successor] {
        std::error_code ignored;
        const bool is_replaced = fs::exists(path, ignored);
        if (is_replaced) fs::remove_all(successor == Successor::kStays ? away : path, ignored);
        if (!is_replaced || successor == Successor::kGoes) fs::rename(away, path, ignored);
    });
    return true;
}

// From all that may ask it, those that are connected too.
bool Injector::cut(const Fault& fault) {
    if (fault.target == "files of a site") return cut_files(fault);
    if (fault.target == "kafka") return shim(kServicePrograms, &ShimState::cut_off_port, kafka_port_, fault.lasts);
    std::array<char, 112> socket{};
    const std::string path = sockets_.at(fault.target);
    check(path.size() < socket.size(), path + " is too long for a socket");
    std::copy(path.begin(), path.end(), socket.begin());
    return shim(kServicePrograms, &ShimState::cut_off_socket, socket, fault.lasts);
}

// One replica alone: the others reach it.
bool Injector::cut_from_kafka(const Fault& fault) {
    const std::string program = "second/atoll-" + fault.target.substr(fault.target.find(' ') + 1);
    return shim({program}, &ShimState::cut_off_port, kafka_port_, fault.lasts);
}

// The file system of a site is away, with its work directory; what runs there goes on.
bool Injector::cut_files(const Fault& fault) {
    const std::string sites[] = {"site-a", "site-b", "site-c"};
    return move_away(directory_ / sites[fault.choice % std::size(sites)], fault.lasts, Successor::kGoes);
}

// It cannot make a blob and answers 500.
bool Injector::break_store(const Fault& fault) {
    return move_away(directory_ / "stack/store/blobs/tmp", fault.lasts, Successor::kStays);
}

template <class Value>
bool Injector::shim(const std::vector<std::string>& programs, Value ShimState::* member, const Value& value,
                    milliseconds time) {
    if (!has_shim()) return false;
    for (const std::string& program : programs) {
        shims_[program].*member = value;
        write_shim(program);
    }
    later(time, [this, programs, member] {
        for (const std::string& program : programs) {
            shims_[program].*member = {};
            write_shim(program);
        }
    });
    return true;
}

void Injector::write_shim(const std::string& program) const {
    std::fstream file(directory_ / "shim" / program, std::ios::in | std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(&shims_.at(program)), sizeof(ShimState));
}

Status Injector::check_shim() const {
    if (!has_shim()) return {};
    for (const auto& [component, socket] : sockets_) {
        const fs::path maps = "/proc/" + std::to_string(supervisor_.find(component).pid) + "/maps";
        std::ifstream file(maps);
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        if (!contains(text, (directory_ / "shim").string()))
            return internal_error(component + " does not read its shim");
    }
    return {};
}

std::map<std::string, int> Injector::missed() const {
    std::map<std::string, int> missed = tries_;
    std::erase_if(missed, [this](const auto& tried) { return counts_.contains(tried.first); });
    return missed;
}

bool Injector::fill_disk(const Fault& fault) {
    const bool is_of_sites = fault.target == "disks of the sites";
    return shim(is_of_sites ? kSitePrograms : std::vector<std::string>{"atoll-store"}, &ShimState::disk_is_full,
                std::int64_t{1}, fault.lasts);
}

// The database's clock decides what happens to jobs, the services' only what their tokens and logs say.
bool Injector::set_clock(const Fault& fault) {
    constexpr std::int64_t kOffsets_s[] = {-86000, -7200, -90, 90, 7200, 86000};
    std::vector<std::string> programs;
    if (fault.target != "postgres") programs = kServicePrograms;
    if (fault.target != "services") programs.emplace_back("postgres");
    return shim(programs, &ShimState::clock_offset_s, kOffsets_s[fault.choice % std::size(kOffsets_s)], fault.lasts);
}

}  // namespace atl::fault
