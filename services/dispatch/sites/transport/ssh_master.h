#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "services/dispatch/settings.h"
#include "services/dispatch/sites/transport/credentials.h"
#include "services/dispatch/sites/transport/login_log.h"
#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {

// How many logins are allowed there now: of the user, and of all users at that machine.
std::int64_t logins_left(const TransportSpec& spec, const SshSettings& settings);

// A facility's one connection: a master of the OpenSSH client, in which all its sessions run, so that a user's
// configuration, ProxyJump, certificates and agents work as they do by hand. No session logs in by itself. Thread-safe.
class SshMaster {
  public:
    SshMaster(const std::string& facility, const TransportSpec& spec, const SshSettings& settings,
              std::stop_token stop);
    // Ends the connection, unless a person made it and only this program ends: nobody else can make it again.
    ~SshMaster();
    SshMaster(const SshMaster&) = delete;
    SshMaster& operator=(const SshMaster&) = delete;

    // Ok: the connection stands, maybe since an earlier life of this process. Otherwise one thread logs in, and those
    // that wait for it meanwhile have its error. A login that was refused, or found another host key, is repeated when
    // something has changed, when a person asks for it, and once an hour; until then its error is given again. It ends
    // at `until` at the latest.
    Status open(bool is_asked_for, std::chrono::steady_clock::time_point until);
    // The command before what a session runs; it fails where the connection has gone.
    std::vector<std::string> session_command() const;

  private:
    class Turn;
    bool is_open() const;
    Status open_in_turn(bool is_asked_for, std::chrono::steady_clock::time_point until, int logins_seen);
    Status log_in(bool is_asked_for, std::chrono::steady_clock::time_point until) const;
    // Whether the login has come as far as the site; then what it said.
    Status log_in_once(std::chrono::steady_clock::time_point until, bool& has_reached_site) const;
    bool is_still_refused(const Credentials& now) const;
    Error with_last_failure(Error spent) const;

    const std::string facility_;
    const TransportSpec spec_;
    const SshSettings settings_;
    const std::filesystem::path socket_;
    const std::stop_token stop_;
    // One thread at a time looks and logs in. (Not a timed_mutex, of whose clock GCC 12's thread sanitizer knows
    // nothing.)
    std::mutex mutex_;
    std::condition_variable turn_ends_;
    bool is_turn_taken_ = false;
    std::atomic<int> logins_ = 0;
    // Of whose turn it is.
    Status last_login_;
    // With what the last login was made, and when.
    Credentials credentials_;
    std::chrono::steady_clock::time_point tried_;
};

// What a person runs on this machine, as this program's user, to log in where a site asks for more than a key: open()
// finds the connection that it leaves. kConflict: there is one.
Result<std::vector<std::string>> login_command(const std::string& facility, const TransportSpec& spec,
                                               const SshSettings& settings);

// The host keys that the facility's host shows now, as TransportSpec has them; nobody logs in.
// It counts as one of the logins that are allowed: to the site it looks like one that was refused.
Result<std::string> read_host_key(const TransportSpec& spec, const SshSettings& settings, const std::stop_token& stop);

}  // namespace atl::dispatch
