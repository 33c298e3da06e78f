#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "services/dispatch/domain/facility.h"
#include "services/dispatch/settings.h"
#include "shared/base/subprocess.h"

namespace atl::dispatch {

// A POSIX shell script to run at a facility. Scripts must be safe to run twice: a reply can be lost.
struct RemoteScript {
    std::string text;
    std::vector<std::string> arguments;  // "$1", "$2", …; visible in the site's process list: never secrets
    std::string input;                   // the script's standard input; secrets go here
    std::chrono::milliseconds timeout{60000};
    bool is_asked_for = false;   // by a person, who has mended what refused logins before
    bool is_for_people = false;  // it never takes the last session from the site's work
    // As CommandOptions has them: more input; and who takes what the script prints as it comes, before it is known
    // whether the answer is complete.
    std::function<std::string()> source = {};
    std::function<bool(std::string_view)> sink = {};
    // The login, the wait for a session and the script together end then at the latest.
    std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max();
};

// The kUnavailable of a transport that has no answer, and whether an error is one in which the site has said nothing at
// all, as in all of these but Cause::kBusy.
Error no_answer(std::string why, Cause cause = Cause::kNoConnection);
bool is_silence(const Error& error);

// Runs scripts at a site. Thread-safe.
class Transport {
  public:
    virtual ~Transport() = default;

    // What the script printed and its exit status. kUnavailable when it is not known whether (or how) the script ran:
    // no connection, a timeout, output without its closing mark. Unknown is never "failed".
    virtual Result<CommandResult> run(const RemoteScript& script) = 0;
};

// A stop request ends the scripts that run with kUnavailable; what they began may go on at the site.
std::unique_ptr<Transport> make_local_transport(std::stop_token stop = {});
std::unique_ptr<Transport> make_ssh_transport(const std::string& facility, const TransportSpec& spec,
                                              const SshSettings& settings, std::stop_token stop = {});
std::unique_ptr<Transport> make_transport(const Facility& facility, const SshSettings& settings,
                                          std::stop_token stop = {});

}  // namespace atl::dispatch
