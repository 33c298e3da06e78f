#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "services/dispatch/domain/task_machine.h"

namespace atl::dispatch {

constexpr std::int64_t kKeepDaysMax = 36500;

// How long a job, or a preparation, is kept after its end, in days.
struct Keep {
    std::int64_t events_days = 90;  // what nobody is shown but as history: its events, and all but the newest attempts
    std::int64_t jobs_days = 0;     // all of it; 0: for good
};

// The object "dispatch" of the configuration file.
struct Settings {
    std::string private_key_file;     // PEM: dispatch issues the tokens of its tasks
    std::string registry_url;         // base of /v1/…
    std::string store_url;            // as this process reaches it
    std::string store_url_for_sites;  // as the facilities reach it: the gateway's address
    std::string programs;             // atoll and atoll-trainer of local facilities that do not say
    std::string topic_prefix;
    std::filesystem::path control_directory;  // sockets of multiplexed ssh connections
    std::int64_t workers = 4;
    std::int64_t lease_s = 15;
    Keep keep;
    PollPolicy local_poll_policy;
    PollPolicy ssh_poll_policy;
};

// kInvalidArgument naming the option ("dispatch.workers").
Result<Settings> parse_settings(const json::Json& own);

}  // namespace atl::dispatch
