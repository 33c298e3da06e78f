#pragma once

#include <string>
#include <utility>

#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {

// What ssh wrote on its standard error when a login failed, read.
struct LoginFailure {
    Cause cause = Cause::kNoConnection;  // kAuthentication, kHostKey
    bool has_reached_site = true;        // false: nobody there has seen a login
    std::string words;                   // the line that tells
    std::string key;                     // what is wrong with a private key here,
    std::string key_mend;                // and what mends that
    std::string fingerprint;             // of the host key that was shown, where it is another one: "SHA256:…"
};

LoginFailure read_login_failure(const std::string& err);

// For people: what is wrong, " → ", what mends it. `certificates`: what is known of those that were shown, may be
// empty.
std::string describe_login_failure(const LoginFailure& failure, const std::string& facility, const TransportSpec& spec,
                                   const std::string& certificates);

// The two sides of such a text; of any other the second is empty.
std::pair<std::string, std::string> split_mend(const std::string& message);

}  // namespace atl::dispatch
