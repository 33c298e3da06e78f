#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "services/dispatch/domain/facility.h"
#include "shared/base/subprocess.h"

namespace atl::dispatch {

// A POSIX shell script to run at a facility. Scripts must be safe to run twice: a reply can be lost.
struct RemoteScript {
    std::string text;
    std::vector<std::string> arguments;  // "$1", "$2", …; visible in the site's process list: never secrets
    std::string input;                   // the script's standard input; secrets go here
    std::chrono::milliseconds timeout{60000};
    bool is_transfer = false;  // goes on at the site for longer than it is waited for, it may be
};

// The kUnavailable of a transport that got no answer, and whether an error is one: the site has said nothing at all.
Error no_answer(std::string why);
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
// `control_directory` (short path, mode 0700) holds the multiplexed connections' sockets.
std::unique_ptr<Transport> make_ssh_transport(const TransportSpec& spec, const std::filesystem::path& control_directory,
                                              std::stop_token stop = {});
std::unique_ptr<Transport> make_transport(const TransportSpec& spec, const std::filesystem::path& control_directory,
                                          std::stop_token stop = {});

}  // namespace atl::dispatch
