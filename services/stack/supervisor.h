#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <stop_token>
#include <string>

#include "services/stack/layout.h"
#include "shared/base/result.h"

// The process that `atoll up` leaves behind: it starts again what ends by itself or is killed.
namespace atl::stack {

// What its pid file and its log are named after.
inline const std::string kSupervisor = "supervisor";

// How often a component was started again, since the supervisor was started.
struct Restarts {
    std::int64_t count = 0;
    std::int64_t last_unix_s = 0;
    std::string error;  // why it could not be started the last time
};

// What the stack's supervisor has written down, by component.
std::map<std::string, Restarts> read_restarts(const Layout& layout);

// local_gateway(), whose error says where it is enough to wait: the supervisor runs and starts the gateway again.
Result<std::string> supervised_gateway(const std::filesystem::path& state);

// Looks twice a second at the components that stack.json names and starts those that do not run: at once, and after
// pauses that double up to a minute where one ends again within a minute. A component that is frozen is alive, and left
// alone; while `up` or `down` is at work nothing is started. Renews tokens at half their life and has the gateway take
// a renewed certificate. Reports what it does, a line each. Ends when asked to, or when the stack is gone.
Status supervise(const std::filesystem::path& state, const std::function<void(const std::string&)>& report,
                 const std::stop_token& stop);

// The supervisor's other work, for a stack that systemd starts: renews tokens at half their life and has the gateway
// take a renewed certificate, until asked to stop or until the stack is gone.
Status keep_renewing(const std::filesystem::path& state, const std::function<void(const std::string&)>& report,
                     const std::stop_token& stop);

}  // namespace atl::stack
