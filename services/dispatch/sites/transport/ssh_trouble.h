#pragma once

#include <set>
#include <string>
#include <utility>

#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {

// What ssh said when a login failed, read. A jump host's banner may stand there as well and look like ssh's own lines:
// nothing of it comes into a command but a path of harmless characters (see forget_foreign_key()).
struct LoginFailure {
    Cause cause = Cause::kNoConnection;  // kAuthentication, kHostKey
    bool has_reached_site = true;        // false: nobody there has seen a login
    std::string words;                   // the line that tells
    std::string key;                     // what is wrong with a private key here,
    std::string key_mend;                // what mends that,
    std::string key_file;                // and the key's path: absolute, with no character that a shell reads otherwise
    std::string fingerprint;             // of the host key that was shown, where it is another one: "SHA256:…"
};

LoginFailure read_login_failure(const std::string& said);

// What counts of a login that failed: `own` is what ssh itself wrote, by its option -E, and `err` its standard error,
// which holds the site's banner, and what a jump host or a ProxyCommand said. The latter counts where ssh came no
// further than them, before any banner of the site, or where ssh could not begin at all. `has_given_up`: ssh ended by
// itself, with its own status 255; else it was ended, perhaps after a banner, and `err` alone tells nothing.
std::string ssh_messages(const std::string& own, const std::string& err, bool has_given_up);

// Forgets what was said of a private key, unless ssh's own configuration names it (`own`): the site may have said it.
void forget_foreign_key(LoginFailure& failure, const std::set<std::string>& own);

// For people: what is wrong, " → ", what mends it. `certificates`: what is known of those that were shown, may be
// empty.
std::string describe_login_failure(const LoginFailure& failure, const std::string& facility, const TransportSpec& spec,
                                   const std::string& certificates);

// The two sides of such a text; of any other the second is empty.
std::pair<std::string, std::string> split_mend(const std::string& message);

}  // namespace atl::dispatch
