#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/doctor/samples.h"

// What is wrong with a stack, from what its services say of themselves. Pure.
namespace atl::cli {

enum class Severity { kCritical, kWarning };
const char* to_string(Severity severity);

struct Problem {
    Severity severity = Severity::kWarning;
    std::string alert;  // of compose/observe/alerts.yaml, with a page in docs/operate/alerts; empty: none tells it
    std::string about;  // a service, a facility, …
    std::string what;
    std::string remedy;
};

// What one service answered.
struct ServiceSeen {
    std::string name;
    std::string error;                  // why there is no answer; empty: there is one
    std::vector<Sample> samples;        // /v1/metrics
    std::optional<double> clock_off_s;  // of its machine's clock, less than ours where negative; empty: not known
};

struct StackSeen {
    std::vector<ServiceSeen> services;
    // Name and state of each component, as `atoll status` shows them, where the stack is of this machine.
    std::vector<std::pair<std::string, std::string>> components;
    std::vector<std::pair<std::string, std::string>> facilities;  // that cannot be worked with: name, reason
    std::vector<std::pair<std::string, std::string>> task_waits;  // of others: name, what a task there waits for
    std::string version;                                          // of this program
    std::int64_t now_unix_s = 0;
    std::int64_t token_end_unix_s = 0;  // of the token that this program uses
};

// The critical ones first.
std::vector<Problem> diagnose(const StackSeen& seen);

// The alerts that diagnose() tells of, in the order of their rules.
std::vector<std::string> diagnosed_alerts();

}  // namespace atl::cli
