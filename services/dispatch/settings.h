#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "services/dispatch/domain/facility.h"
#include "services/dispatch/domain/task_machine.h"

namespace atl::service {
class SettingsReader;
}

namespace atl::dispatch {

constexpr std::int64_t kKeepDaysMax = 36500;

// How long a job, or a preparation, is kept after its end, in days.
struct Keep {
    std::int64_t events_days = 90;  // what nobody is shown but as history: its events, and all but the newest attempts
    std::int64_t jobs_days = 0;     // all of it; 0: for good
};

// What is asked of the sites that are reached by ssh.
struct SshSettings {
    // Of the connections' sockets, mode 0700; its path has at most kControlPathMax bytes.
    std::filesystem::path control_directory;
    std::int64_t sessions_max = 2;  // at once, of a facility
    std::int64_t logins_max = 4;    // of a facility, within
    std::int64_t logins_window_s = 600;
    // Told of each login that was tried; from any thread. Not of the configuration.
    std::function<void(const std::string& facility, bool has_succeeded)> on_login = {};
};
constexpr std::size_t kControlPathMax = 70;

// The object "dispatch" of the configuration file.
struct Settings {
    std::string private_key_file;     // PEM: dispatch issues the tokens of its tasks
    std::string registry_url;         // base of /v1/…
    std::string store_url;            // as this process reaches it
    std::string aggregation_url;      // asked where no event tells what became of a round; empty: it is not asked
    std::string store_url_for_sites;  // as facilities reach it that are elsewhere, or in an image; empty: they cannot
    std::string programs;             // atoll and atoll-trainer of local facilities that do not say
    std::string topic_prefix;
    SshSettings ssh;
    std::int64_t workers = 4;
    std::int64_t operator_active_max = 32;  // jobs and preparations of one operator that have not ended
    std::int64_t facility_steps_max = 2;    // at one facility at a time, of all dispatch processes
    std::int64_t lease_s = 15;
    Keep keep;
    PollPolicy local_poll_policy;
    PollPolicy ssh_poll_policy;
};

// The store as the transfers of a facility reach it. On this machine they are our own user's processes and go the way
// that we go ourselves; what is in an image may not see our files. Through the ssh session we move the data ourselves.
// Empty: there is no such way.
const std::string& store_url_for(const Facility& facility, const Settings& settings);
// kInvalidArgument that says what to do where there is no way.
Status require_store_url(const Facility& facility, const Settings& settings);

// Reads each key, with what docs/reference/settings.md says of it.
Settings read_settings(service::SettingsReader& reader);

// kInvalidArgument naming the option ("dispatch.workers").
Result<Settings> parse_settings(const json::Json& own);

}  // namespace atl::dispatch
