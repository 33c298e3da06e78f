#include "services/stack/stack.h"

#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/stack/components.h"
#include "services/stack/process.h"
#include "shared/base/backoff.h"
#include "shared/base/file.h"
#include "shared/base/file_lock.h"
#include "shared/base/text.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::uint16_t kPortBase = 7400;
constexpr std::chrono::seconds kSupervisorStopMax{5};
double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// The likeliest holder of a port of ours is another coordinator on this machine, the demo's perhaps.
std::string hint_of_holder(std::uint16_t port) {
    if (!answers("http://" + loopback(port), "/registry/readyz")) return {};
    return ". An Atoll runs there: if it is the demo's, `./dev demo --down` ends it";
}

Result<Ports> ports_for(const UpOptions& options, const Layout& layout) {
    const auto before = read_stack_file(layout.state);
    if (before.ok() && before->contains("ports") && !options.port_base) return ports_from_json(before->at("ports"));
    const std::uint16_t base = options.port_base.value_or(kPortBase);
    auto ports = choose_ports(base);
    if (ports.ok() || base == 0 || port_is_free(base)) return ports;
    return conflict(ports.error().message + hint_of_holder(base), ports.error().field);
}

const char* to_string(Supervision supervision) {
    return supervision == Supervision::kAtoll ? "atoll" : supervision == Supervision::kSystemd ? "systemd" : "none";
}

// As asked for, or as it was.
Supervision supervision_of(const UpOptions& options, const Layout& layout) {
    if (options.supervision) return *options.supervision;
    const auto before = read_stack_file(layout.state);
    const std::string had = before.ok() ? before->value("supervision", "") : "";
    for (const Supervision one : {Supervision::kNone, Supervision::kAtoll, Supervision::kSystemd})
        if (had == to_string(one)) return one;
    return options.atoll.empty() ? Supervision::kNone : Supervision::kAtoll;
}

// Whoever starts the components starts all of them.
Status check_supervision(const UpOptions& options, const Layout& layout) {
    const bool is_systemds = supervision_of({}, layout) == Supervision::kSystemd;
    const bool will_be = supervision_of(options, layout) == Supervision::kSystemd;
    if (is_systemds && !options.supervision)
        return conflict("systemd starts this stack: `systemctl start atoll.target`; with --supervise Atoll does again");
    if (is_systemds == will_be || !any_running(layout)) return {};
    return conflict(will_be ? "Atoll runs: `atoll down --state " + quoted(layout.state) + "` first, its data stays"
                            : "systemd runs this stack: `systemctl stop atoll.target` first, its data stays");
}

bool wanted(const UpOptions& options, const std::string& name) {
    return options.only.empty() || std::find(options.only.begin(), options.only.end(), name) != options.only.end();
}

// The ports of what will be started: nothing else listens there.
Status check_ports(const UpOptions& options, const Stack& stack) {
    const Layout& layout = stack.layout;
    for (const auto& wave : start_waves()) {
        for (const std::string& name : wave) {
            const std::uint16_t port = stack.ports.of(name);
            const fs::path pid_file = layout.pid_file(name);
            if (port == 0 || !wanted(options, name) || running_process(pid_file)) continue;
            // The children of a leader that died may hold it.
            ATOLL_RETURN_IF_ERROR(stop_recorded(pid_file, SIGTERM, std::chrono::seconds(5)));
            if (port_is_free(port)) continue;
            const std::string where = " --state " + quoted(layout.state);
            return conflict("port " + std::to_string(port) + " (" + name +
                                "), which this stack had, is taken by another " +
                                "program. Nothing was started: end it, or give this stack other ports: " +
                                (any_running(layout) ? "`atoll down" + where + "`, then " : "") + "`atoll up" + where +
                                " --port-base N`, 0 for any free ones" + hint_of_holder(port),
                            "--port-base");
        }
    }
    return {};
}

nlohmann::json describe_stack(const Stack& stack, const UpOptions& options) {
    const Layout& layout = stack.layout;
    nlohmann::json description = {{"gateway", "http://" + loopback(stack.ports.gateway)},
                                  {"gateway_socket", socket_address(layout, "gateway")},
                                  {"postgres", postgres_conninfo(layout)},
                                  {"kafka", loopback(stack.ports.kafka)},
                                  {"kafka_credentials", layout.kafka_credentials().string()},
                                  {"public_key", layout.public_key().string()},
                                  {"private_key", layout.private_key().string()},
                                  {"ports", to_json(stack.ports)},
                                  {"public", to_json(stack.address)},
                                  {"supervision", to_string(supervision_of(options, layout))}};
    for (const auto& [key, given] : {std::pair{"programs", options.programs}, {"kafka_jars", options.kafka_jars}})
        if (const fs::path place = given_or_recorded(given, layout, key); !place.empty())
            description[key] = place.string();
    for (const char* name : {"admin", "operator", "viewer", "metrics"})
        description["tokens"][name] = layout.token(name).string();
    for (const auto& wave : start_waves())
        for (const std::string& name : wave)
            if (wanted(options, name) || running_process(layout.pid_file(name)))
                description["components"].push_back(name);
    for (const std::string& name : start_waves()[1]) description["services"][name] = socket_address(layout, name);
    return description;
}

std::string last_lines(const fs::path& log, std::size_t bytes_max = 2000) {
    const auto text = read_file(log);
    if (!text.ok()) return {};
    const std::size_t from = text->size() > bytes_max ? text->find('\n', text->size() - bytes_max) : 0;
    return from == std::string::npos ? *text : text->substr(from);
}

Error start_error(const Component& component, const fs::path& log, const std::string& what) {
    return unavailable(component.name + " " + what + "; the end of " + log.string() + ":\n" + last_lines(log));
}

Status wait_until_ready(const Component& component, const Layout& layout, const Report& report) {
    const auto start = Clock::now();
    double reported_s = 0;
    while (!component.ready()) {
        if (!running_process(layout.pid_file(component.name)))
            return start_error(component, layout.log(component.name), "ended while starting");
        const double waited_s = seconds_since(start);
        if (waited_s > static_cast<double>(component.start_time_max.count()))
            return start_error(component, layout.log(component.name), "is not ready after " + human_seconds(waited_s));
        if (waited_s - reported_s >= 4) {
            reported_s = waited_s;
            report(component.name + ": still starting, " + human_seconds(waited_s));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return {};
}

// What a killed predecessor left (Postgres' children, a broker's lock) may need a moment to go: a program that ends
// while it starts is started again, a few times.
Status start_until_ready(const Component& component, const Layout& layout, const Report& report) {
    constexpr int kAttempts = 4;
    constexpr std::chrono::milliseconds kRestartWait{500};
    constexpr std::chrono::milliseconds kRestartWaitMax{1500};
    for (int attempt = 1;; ++attempt) {
        ATOLL_TRY(const auto argv, component.start());
        ATOLL_RETURN_IF_ERROR(start_recorded(argv, layout.pid_file(component.name), layout.log(component.name)));
        const Status status = wait_until_ready(component, layout, report);
        if (status.ok() || attempt == kAttempts || running_process(layout.pid_file(component.name))) return status;
        std::this_thread::sleep_for(backoff_delay(attempt, kRestartWait, kRestartWaitMax));
    }
}

Status bring_up(const Component& component, const Layout& layout, const Report& report) {
    const auto start = Clock::now();
    const auto is_running = [&] { return running_process(layout.pid_file(component.name)).has_value(); };
    bool runs = is_running();
    Status status = runs ? wait_until_ready(component, layout, report) : Status();
    if (!runs || !is_running()) {  // also one that was dying when we came
        runs = false;
        status = start_until_ready(component, layout, report);
    }
    ATOLL_RETURN_IF_ERROR(status);
    report(component.name + (runs ? ": runs already" : ": ready after " + human_seconds(seconds_since(start))) + "  " +
           component.address);
    return {};
}

// All of a wave at once; the first error, when every one has ended.
Status bring_up_wave(const std::vector<Component>& wave, const Layout& layout, const Report& report) {
    std::vector<std::future<Status>> results;
    for (const Component& component : wave)
        results.push_back(std::async(std::launch::async, [&] { return bring_up(component, layout, report); }));
    Status first;
    for (auto& result : results)
        if (Status status = result.get(); !status.ok() && first.ok()) first = std::move(status);
    return first;
}

struct Ending {
    Component component;
    std::future<Result<int>> killed;
};

Status bring_down_wave(const Stack& stack, const std::vector<std::string>& names, const Report& report,
                       DownResult& result) {
    std::vector<Ending> endings;
    for (const std::string& name : names) {
        const fs::path pid_file = stack.layout.pid_file(name);
        if (!fs::exists(pid_file)) continue;
        const Component component = component_named(stack, name);
        endings.push_back({component, std::async(std::launch::async, stop_recorded, pid_file, component.stop_signal,
                                                 component.stop_time_max)});
    }
    for (auto& [component, ending] : endings) {
        ATOLL_TRY(const int killed, ending.get());
        component.after_stop();
        (killed > 0 ? result.killed : result.stopped).push_back(component.name);
        report(component.name +
               (killed > 0 ? ": killed, it did not end in " + std::to_string(component.stop_time_max.count()) + " s"
                           : ": stopped"));
    }
    return {};
}

Status delete_all_but_logs(const Layout& layout) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(layout.state, error))
        if (entry.path().filename() != "logs" && !error) fs::remove_all(entry.path(), error);
    return error ? internal_error("cannot delete " + layout.state.string() + ": " + error.message()) : Status();
}

Status check_names(const std::vector<std::string>& only) {
    for (const std::string& name : only) {
        const bool known = std::any_of(start_waves().begin(), start_waves().end(), [&](const auto& wave) {
            return std::find(wave.begin(), wave.end(), name) != wave.end();
        });
        if (!known) {
            std::vector<std::string> all;
            for (const auto& wave : start_waves()) all.insert(all.end(), wave.begin(), wave.end());
            return invalid_argument("--only", "no component is called '" + name + "'; there are " + join(all));
        }
    }
    return {};
}

// Before anything is made or started.
Status check_programs(const UpOptions& options, const Layout& layout) {
    const Stack stack = found_stack(layout, options.programs, options.kafka_jars);
    for (const auto& wave : start_waves())
        for (const std::string& name : wave)
            if (wanted(options, name) && !running_process(layout.pid_file(name)))
                ATOLL_RETURN_IF_ERROR(component_named(stack, name).find());
    return {};
}

Result<Stack> make_stack(const UpOptions& options, const Layout& layout) {
    Stack stack = found_stack(layout, options.programs, options.kafka_jars);
    ATOLL_TRY(stack.ports, ports_for(options, layout));
    stack.address = options.address ? *options.address : recorded_address(layout);
    return stack;
}

// Postgres and Kafka write before they answer; without room they end with an error that nobody understands.
Status check_disk(const UpOptions& options, const Layout& layout) {
    constexpr std::uint64_t kNeeded = 64U << 20;
    const auto is_to_start = [&](const std::string& name) {
        return wanted(options, name) && !running_process(layout.pid_file(name));
    };
    const bool starts_any = std::any_of(start_waves().begin(), start_waves().end(), [&](const auto& wave) {
        return std::any_of(wave.begin(), wave.end(), is_to_start);
    });
    struct statvfs disk{};
    fs::path place = layout.state;
    while (::statvfs(place.c_str(), &disk) != 0 && place.has_relative_path()) place = place.parent_path();
    const std::uint64_t free_bytes = std::uint64_t{disk.f_bavail} * disk.f_frsize;
    if (!starts_any || disk.f_frsize == 0 || free_bytes >= kNeeded) return {};
    return Error{ErrorCode::kInsufficientStorage,
                 "the disk of " + layout.state.string() + " is full: " + std::to_string(free_bytes >> 10) +
                     " KiB are free, and PostgreSQL and Kafka need " + std::to_string(kNeeded >> 20) +
                     " MiB to start. Nothing was started: make room, then `" + start_command(layout.state) +
                     "`; nothing is lost meanwhile",
                 "--state"};
}

// Leaves behind the one that is to be there, and no other.
Status arrange_supervisor(const UpOptions& options, const Layout& layout) {
    const auto pid_file = layout.pid_file(kSupervisor);
    if (supervision_of(options, layout) != Supervision::kAtoll)
        return stop_recorded(pid_file, SIGTERM, kSupervisorStopMax).ok()
                   ? Status()
                   : Status(internal_error("the supervisor does not end"));
    if (running_process(pid_file)) return {};
    return start_recorded({options.atoll, "supervise", "--state", layout.state}, pid_file, layout.log(kSupervisor));
}

bool is_same_place(const fs::path& one, const fs::path& other) {
    std::error_code error;
    return fs::weakly_canonical(one, error) == fs::weakly_canonical(other, error);
}

// Where a running component's files are: the program's directory, Kafka's jars. Empty where it does not run or has
// none.
fs::path running_from(const Layout& layout, const std::string& name) {
    const auto process = running_process(layout.pid_file(name));
    const auto arguments = process ? command_line(*process) : std::vector<std::string>();
    if (name != "kafka") return arguments.empty() ? fs::path() : fs::path(arguments.front()).parent_path();
    const auto flag = std::find(arguments.begin(), arguments.end(), "-cp");
    return flag == arguments.end() || flag + 1 == arguments.end() ? fs::path() : fs::path(*(flag + 1)).parent_path();
}

// The flags that ask for something else than what runs has, each with what that is.
std::vector<std::string> unlike_running(const UpOptions& options, const Layout& layout) {
    std::vector<std::string> flags;
    const auto compare = [&](const std::string& flag, const std::string& asked, const std::string& has, bool is_same) {
        if (!is_same) flags.push_back(flag + " " + asked + " (it has " + (has.empty() ? "none" : has) + ")");
    };
    const auto before = read_stack_file(layout.state);
    const std::uint16_t gateway =
        before.ok() && before->contains("ports") ? ports_from_json(before->at("ports")).gateway : 0;
    if (const int base = options.port_base.value_or(0); base != 0)
        compare("--port-base", std::to_string(base), std::to_string(gateway), base == gateway);
    if (options.address) {
        const PublicAddress had = recorded_address(layout);
        const auto text = [&](const char* flag, const std::string& asked, const std::string& has) {
            compare(flag, asked.empty() ? "none" : asked, has, asked == has);
        };
        text("--public-url", options.address->url, had.url);
        text("--public-listen", options.address->listen, had.listen);
        text("--tls-certificate", options.address->certificate, had.certificate);
        text("--tls-key", options.address->certificate_key, had.certificate_key);
        text("--trusted-proxies", options.address->trusted_proxies, had.trusted_proxies);
    }
    const auto place = [&](const char* flag, const fs::path& asked, const fs::path& has) {
        if (!asked.empty() && !has.empty()) compare(flag, asked, has, is_same_place(asked, has));
    };
    for (const std::string& service : start_waves()[1])
        if (wanted(options, service)) place("--programs", options.programs, running_from(layout, service));
    if (wanted(options, "kafka")) place("--kafka-jars", options.kafka_jars, running_from(layout, "kafka"));
    flags.erase(std::unique(flags.begin(), flags.end()), flags.end());  // one of four services is enough
    return flags;
}

// What runs is not changed by flags: they are not passed over in silence.
Status check_unlike_running(const UpOptions& options, const Layout& layout) {
    const auto flags = unlike_running(options, layout);
    if (flags.empty()) return {};
    std::string list;
    for (const std::string& flag : flags) list += "\n  " + flag;
    const std::string state = quoted(layout.state);
    return conflict("Atoll runs already and cannot take over:" + list +
                    "\n  Nothing was changed. First `atoll down --state " + state +
                    "`, its data stays; then `atoll up --state " + state + "` with these flags");
}

// What an `up` that failed early has made: directories with nothing in them, and its lock. A directory that holds
// something may be anybody's: of a mistyped one nothing is deleted.
Result<DownResult> delete_unfinished(const Layout& layout, const Error& why) {
    const auto may_be_there = [](const fs::path& path) {
        std::error_code error;
        return fs::exists(path, error) || error;
    };
    if (may_be_there(layout.file()) || !may_be_there(layout.state / "lock") || !may_be_there(layout.state / "run"))
        return why;
    ATOLL_TRY(const UniqueFd held, lock_state(layout));
    for (const fs::path& made : {layout.private_key(), layout.token("admin"), layout.postgres()})
        if (may_be_there(made))
            return conflict("no stack is recorded in " + layout.state.string() + " (no stack.json), yet " +
                                made.string() + " is there: if nobody needs it, delete the directory by hand",
                            "--state");
    std::error_code error;
    for (const char* name : {"run", "logs", "keys", "tokens", "config", "store", "kafka", "nginx"})
        fs::remove(layout.state / name, error);  // one that is not empty stays
    fs::remove(layout.state / "lock", error);
    return DownResult();
}

}  // namespace

Result<UniqueFd> try_lock_state(const Layout& layout) {
    UniqueFd fd(::open((layout.state / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd.valid()) return internal_error("cannot open " + (layout.state / "lock").string());
    if (!try_lock(fd))
        return conflict("another `atoll up`, `atoll down` or `atoll token rotate-key` is at work in " +
                        layout.state.string());
    return fd;
}

Result<UniqueFd> lock_state(const Layout& layout) {
    constexpr std::chrono::seconds kPatience{10};  // the supervisor holds it while it starts a component
    constexpr std::chrono::milliseconds kLockPause{50};
    const auto deadline = Clock::now() + kPatience;
    for (;;) {
        auto held = try_lock_state(layout);
        const bool is_busy = !held.ok() && held.error().code == ErrorCode::kConflict;
        if (!is_busy || Clock::now() >= deadline) return held;
        std::this_thread::sleep_for(kLockPause);
    }
}

Status check_options(const UpOptions& options) {
    ATOLL_RETURN_IF_ERROR(check_names(options.only));
    if (options.address) ATOLL_RETURN_IF_ERROR(check_address(*options.address));
    const Layout layout{fs::absolute(options.state).lexically_normal()};
    ATOLL_RETURN_IF_ERROR(check_owner(layout.state));
    ATOLL_RETURN_IF_ERROR(check_programs(options, layout));
    return check_disk(options, layout);
}

Result<nlohmann::json> up(const UpOptions& options, const Report& report) {
    ATOLL_RETURN_IF_ERROR(check_options(options));
    const Layout layout{fs::absolute(options.state).lexically_normal()};
    ATOLL_RETURN_IF_ERROR(make_directories(layout));
    ATOLL_TRY(const UniqueFd held, lock_state(layout));
    ATOLL_RETURN_IF_ERROR(check_supervision(options, layout));
    UpOptions effective = options;
    if (any_running(layout)) {
        ATOLL_RETURN_IF_ERROR(check_unlike_running(options, layout));
        effective.port_base.reset();  // what runs keeps its ports
    }
    ATOLL_TRY(const Stack stack, make_stack(effective, layout));
    ATOLL_RETURN_IF_ERROR(check_ports(options, stack));
    ATOLL_RETURN_IF_ERROR(make_credentials(layout));
    const nlohmann::json description = describe_stack(stack, options);
    ATOLL_RETURN_IF_ERROR(write_file_atomic(layout.file(), description.dump(2) + "\n"));
    if (supervision_of(options, layout) == Supervision::kSystemd) return description;
    for (const auto& names : start_waves()) {
        std::vector<Component> wave;
        for (const std::string& name : names)
            if (wanted(options, name)) wave.push_back(component_named(stack, name));
        ATOLL_RETURN_IF_ERROR(bring_up_wave(wave, layout, report));
    }
    ATOLL_RETURN_IF_ERROR(arrange_supervisor(options, layout));
    return description;
}

Result<DownResult> down(const fs::path& state, bool delete_data, const Report& report) {
    if (const auto file = read_stack_file(state);
        delete_data && !file.ok() && file.error().code == ErrorCode::kNotFound)
        return delete_unfinished(Layout{state}, file.error());
    ATOLL_TRY(const Stack stack, recorded_stack(state));
    ATOLL_TRY(const UniqueFd held, lock_state(stack.layout));
    if (supervision_of({}, stack.layout) == Supervision::kSystemd && any_running(stack.layout))
        return conflict("systemd runs this stack: `systemctl stop atoll.target` ends it");
    ATOLL_RETURN_IF_ERROR(stop_recorded(stack.layout.pid_file(kSupervisor), SIGTERM, kSupervisorStopMax));
    DownResult result;
    for (auto wave = start_waves().rbegin(); wave != start_waves().rend(); ++wave)
        ATOLL_RETURN_IF_ERROR(bring_down_wave(stack, *wave, report, result));
    if (delete_data) ATOLL_RETURN_IF_ERROR(delete_all_but_logs(stack.layout));
    return result;
}

void note_what_they_wait_for(std::vector<ComponentStatus>& components) {
    for (ComponentStatus& one : components) {
        std::vector<std::string> missing;
        for (const ComponentStatus& other : components)
            if (wave_of(other.name) < wave_of(one.name) && other.state != "ready") missing.push_back(other.name);
        if (one.state == "not ready") one.waits_for = join(missing);
    }
}

Result<std::vector<ComponentStatus>> status(const fs::path& state) {
    ATOLL_TRY(const Stack stack, recorded_stack(state));
    ATOLL_TRY(const nlohmann::json description, read_stack_file(stack.layout.state));
    const auto look = [&](const Component& component) {
        ComponentStatus one{component.name, "stopped", component.address};
        if (const auto process = running_process(stack.layout.pid_file(component.name))) {
            one.state = component.ready() ? "ready" : "not ready";
            one.pid = process->pid;
            one.uptime_s = stack::uptime_s(*process);
            one.memory_bytes = stack::memory_bytes(*process, component.name != kSupervisor);  // its are the components
            if (component.name == "store") one.disk = store_disk(component.address);
        }
        return one;
    };
    std::vector<ComponentStatus> all;
    const auto restarts = read_restarts(stack.layout);
    for (const std::string name : description.at("components")) {
        all.push_back(look(component_named(stack, name)));
        if (const auto found = restarts.find(name); found != restarts.end()) all.back().restarts = found->second;
    }
    note_what_they_wait_for(all);
    if (supervision_of({}, stack.layout) != Supervision::kAtoll) return all;
    Component supervisor;
    supervisor.name = kSupervisor;
    supervisor.ready = [] { return true; };
    all.push_back(look(supervisor));
    return all;
}

bool is_starting_again(const std::vector<ComponentStatus>& components) {
    constexpr double kStartTimeMax_s = 120;
    const auto is_new = [](const ComponentStatus& one) { return one.pid == 0 || one.uptime_s < kStartTimeMax_s; };
    // A service is ready some seconds after what it needs.
    const auto needs_new = [&](const ComponentStatus& one) {
        return std::any_of(components.begin(), components.end(), [&](const ComponentStatus& other) {
            return wave_of(other.name) < wave_of(one.name) && is_new(other);
        });
    };
    const auto is_coming = [&](const ComponentStatus& one) {
        return one.state == "ready" || (one.restarts.error.empty() && (is_new(one) || needs_new(one)));
    };
    const auto is_supervisor = [](const ComponentStatus& one) { return one.name == kSupervisor && one.pid != 0; };
    return std::any_of(components.begin(), components.end(), is_supervisor) &&
           std::all_of(components.begin(), components.end(), is_coming);
}

}  // namespace atl::stack
