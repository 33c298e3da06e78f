#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "services/stack/component.h"
#include "services/stack/supervisor.h"

// Starting, looking at and ending the stack of one machine.
namespace atl::stack {

// Who starts again what ends of a stack.
enum class Supervision {
    kNone,    // nobody but the next `up`
    kAtoll,   // a supervisor that `up` leaves behind (supervisor.h)
    kSystemd  // its units (systemd.h)
};

struct UpOptions {
    std::filesystem::path state;
    std::optional<std::uint16_t> port_base;  // none: the ports it had, else 7400 and the following; 0: any free ones
    std::optional<PublicAddress> address;    // none: the one it had
    std::vector<std::string> only;           // names of components; empty: all
    std::filesystem::path programs;          // empty: the one it had, else where this program is
    std::filesystem::path kafka_jars;        // empty: the one it had, else found
    std::optional<Supervision> supervision;  // none: the one it had, else kNone
    std::filesystem::path atoll;             // the program `atoll`, which the supervisor is
};

// kInvalidArgument: `up` could not do what they ask. Changes nothing.
Status check_options(const UpOptions& options);

// A line of progress for people, from any thread.
using Report = std::function<void(const std::string&)>;

// Starts what does not run, waits until all is ready, returns stack.json. A second call changes nothing that runs:
// kConflict names the options that ask for something else than it has. kInsufficientStorage: the disk is full, nothing
// was started. With kSystemd nothing is started either: systemd is to.
Result<nlohmann::json> up(const UpOptions& options, const Report& report);

struct DownResult {
    std::vector<std::string> stopped;
    std::vector<std::string> killed;  // did not end by themselves in time
};
// delete_data: afterwards removes everything under the state directory but the logs.
Result<DownResult> down(const std::filesystem::path& state, bool delete_data, const Report& report);

struct ComponentStatus {
    std::string name;
    std::string state;  // "ready", "not ready", "stopped"
    std::string address;
    int pid = 0;
    double uptime_s = 0;
    std::uint64_t memory_bytes = 0;
    std::optional<DiskSpace> disk = {};  // of a store that answers
    Restarts restarts = {};              // by the supervisor
    std::string waits_for = {};          // what it needs and is not ready either, where it is not ready itself
};
// The supervisor is among them where there is to be one. kNotFound when no stack was ever started there.
Result<std::vector<ComponentStatus>> status(const std::filesystem::path& state);
// Sets their `waits_for`.
void note_what_they_wait_for(std::vector<ComponentStatus>& components);
// Whether waiting is enough for all to be ready: the supervisor runs, and what is not ready has ended, was started a
// moment ago or needs what is so, without a fault that keeps it from starting.
bool is_starting_again(const std::vector<ComponentStatus>& components);

// Replaces the key that signs tokens, while everything runs: the new public key is added, then each service that runs
// takes a token of the new key (kUnavailable after `patience`), then dispatch gets it and tokens/ are made anew. Tokens
// of the old key go on to hold. Whoever is killed on the way leaves what works, and the next call goes on from there.
Status rotate_key(const std::filesystem::path& state, const Report& report,
                  std::chrono::milliseconds patience = std::chrono::minutes(1));
// Then every token ends that is not of the key that signs; those in tokens/ are made anew first.
Status drop_old_keys(const std::filesystem::path& state, const Report& report);

}  // namespace atl::stack
