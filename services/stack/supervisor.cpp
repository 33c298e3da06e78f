#include "services/stack/supervisor.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>

#include "services/stack/components.h"
#include "services/stack/process.h"
#include "services/stack/renewal.h"
#include "services/stack/restart_schedule.h"
#include "shared/base/backoff.h"
#include "shared/base/file.h"

namespace atl::stack {
namespace {

using Clock = std::chrono::steady_clock;

std::filesystem::path restarts_file(const Layout& layout) {
    return layout.state / "run/restarts.json";
}

// Whether nothing but what is ours keeps it from its port.
Status check_port(const Stack& stack, const std::string& name) {
    const std::uint16_t port = stack.ports.of(name);
    if (port == 0 || port_is_free(port)) return {};
    return conflict("port " + std::to_string(port) + " is taken by another program");
}

Status start_component(const Stack& stack, const std::string& name) {
    const Component component = component_named(stack, name);
    const auto pid_file = stack.layout.pid_file(name);
    ATOLL_RETURN_IF_ERROR(stop_recorded(pid_file, SIGTERM, kLeftoversMax));  // a dead leader's children
    ATOLL_RETURN_IF_ERROR(check_port(stack, name));
    ATOLL_TRY(const auto argv, component.start());
    return start_recorded(argv, pid_file, stack.layout.log(name));
}

class Supervisor {
  public:
    Supervisor(std::filesystem::path state, std::function<void(const std::string&)> report)
        : state_(std::move(state)), report_(std::move(report)), renewal_(report_) {}

    // False when there is nothing to look after any more.
    bool look() {
        const auto stack = recorded_stack(state_);
        const auto description = read_stack_file(state_);
        if (!stack.ok() || !description.ok()) return false;
        renewal_.look(*stack);
        std::vector<std::string> due;
        for (const auto& wave : start_waves())
            for (const std::string& name : wave)
                if (is_wanted(*description, name) && is_due(stack->layout, name)) due.push_back(name);
        if (due.empty()) return true;
        const auto held = try_lock_state(stack->layout);
        if (!held.ok()) return true;                 // whoever is at work starts or ends them
        const auto newest = recorded_stack(state_);  // as it is since the lock was last held
        if (!newest.ok()) return false;
        for (const std::string& name : due)
            if (!running_process(newest->layout.pid_file(name))) start(*newest, name);
        return true;
    }

  private:
    struct Watched {
        std::optional<Clock::time_point> runs_since;  // none: it does not run
        Clock::time_point next_start;
        std::int64_t quick_ends = 0;  // in a row
        Restarts restarts;
    };

    static bool is_wanted(const nlohmann::json& description, const std::string& name) {
        const auto& names = description.value("components", nlohmann::json::array());
        return std::find(names.begin(), names.end(), name) != names.end();
    }

    bool is_due(const Layout& layout, const std::string& name) {
        Watched& watched = watched_[name];
        const auto now = Clock::now();
        if (running_process(layout.pid_file(name))) {
            if (!watched.runs_since) watched.runs_since = now;
            return false;
        }
        if (watched.runs_since) {
            const bool was_stable = now - *watched.runs_since >= kStableAfter;
            watched.quick_ends = was_stable ? 0 : watched.quick_ends + 1;
            watched.next_start = now + restart_pause(watched.quick_ends);
            watched.runs_since.reset();
        }
        return now >= watched.next_start;
    }

    void start(const Stack& stack, const std::string& name) {
        Watched& watched = watched_[name];
        const Status started = contained([&] { return start_component(stack, name); });
        watched.restarts.error = started.ok() ? "" : describe(started.error());
        if (started.ok()) {
            watched.runs_since = Clock::now();
            watched.restarts.last_unix_s =
                std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                    .count();
            ++watched.restarts.count;
            const std::int64_t count = watched.restarts.count;
            report_(name + " had ended and was started again" +
                    (count == 1 ? "" : ", so far " + std::to_string(count) + " times"));
        } else {
            watched.next_start = Clock::now() + backoff_delay(++watched.quick_ends, kRestartPause, kRestartPauseMax);
            report_(name + " has ended and cannot be started: " + watched.restarts.error);
        }
        write_restarts(stack.layout);
    }

    // On a full disk it cannot be kept; the next restart writes it all.
    void write_restarts(const Layout& layout) const {
        nlohmann::json all = nlohmann::json::object();
        for (const auto& [name, watched] : watched_)
            if (watched.restarts.count > 0 || !watched.restarts.error.empty())
                all[name] = {{"count", watched.restarts.count},
                             {"last_unix_s", watched.restarts.last_unix_s},
                             {"error", watched.restarts.error}};
        const Status written = write_file_atomic(restarts_file(layout), all.dump(2) + "\n");
        if (!written.ok()) report_("cannot write down what was started again: " + describe(written.error()));
    }

    const std::filesystem::path state_;
    const std::function<void(const std::string&)> report_;
    std::map<std::string, Watched> watched_;
    Renewal renewal_;
};

}  // namespace

std::map<std::string, Restarts> read_restarts(const Layout& layout) {
    std::map<std::string, Restarts> restarts;
    const auto text = read_file(restarts_file(layout));
    const auto all = nlohmann::json::parse(text.ok() ? *text : "", nullptr, /*allow_exceptions=*/false);
    if (!all.is_object()) return restarts;
    for (const auto& [name, one] : all.items())
        restarts[name] = {one.value("count", std::int64_t{0}), one.value("last_unix_s", std::int64_t{0}),
                          one.value("error", "")};
    return restarts;
}

Result<std::string> supervised_gateway(const std::filesystem::path& state) {
    auto gateway = local_gateway(state);
    const bool is_away = !gateway.ok() && gateway.error().code == ErrorCode::kUnavailable;
    if (!is_away || !running_process(Layout{state}.pid_file(kSupervisor))) return gateway;
    return unavailable("the gateway of Atoll in " + state.string() +
                       " does not answer; the supervisor starts it again within seconds: wait a moment, or look at "
                       "`atoll status`");
}

Status supervise(const std::filesystem::path& state, const std::function<void(const std::string&)>& report,
                 const std::stop_token& stop) {
    Supervisor supervisor(std::filesystem::absolute(state).lexically_normal(), report);
    std::error_code ignored;
    std::filesystem::remove(restarts_file(Layout{state}), ignored);
    while (supervisor.look() && wait_unless_stopped(stop, kLookInterval)) {
    }
    return {};
}

Status keep_renewing(const std::filesystem::path& state, const std::function<void(const std::string&)>& report,
                     const std::stop_token& stop) {
    Renewal renewal(report);
    do {
        ATOLL_TRY(const Stack stack, recorded_stack(std::filesystem::absolute(state).lexically_normal()));
        renewal.look(stack);
    } while (wait_unless_stopped(stop, kLookInterval));
    return {};
}

}  // namespace atl::stack
